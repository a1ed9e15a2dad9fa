"""The timeline: rows, boxes arranged for fast windows, their wire format, and what is known about a selected one."""
