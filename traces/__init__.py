"""Export of timed runs: Chrome traces, bandwidth series, and the check of what was written."""
