"""The tables and figures of the paper's experiments, each by name, with the published value beside the measured one."""
