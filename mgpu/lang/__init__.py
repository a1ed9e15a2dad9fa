"""The kernel language: what kernel authors call inside a kernel body, one file per hardware unit.

Every operation is a JAX primitive of ours. Calling one binds it; its abstract evaluation checks the operands and
words the error. What it does when it runs is the targets' business (`mgpu.sim`, `mgpu.gpu`).
"""
