"""What the commands do, one module each; ``auditor.cli`` says how they are called."""
