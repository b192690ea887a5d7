"""The commands: one file each; parse, call, print; nothing else."""
