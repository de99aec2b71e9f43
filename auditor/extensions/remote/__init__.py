"""``--on HOST``: an audit on another machine, by the system's ssh or SLURM's srun."""
