"""From a kernel function to a KernelProgram: a jaxpr of the language's primitives and the shape of the launch."""
