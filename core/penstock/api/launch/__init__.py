"""What a process is told at its start by who starts it: workers, and Spark workers of remote tasks."""
