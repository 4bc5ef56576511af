"""What every command stands on: options, the session and files it works with, output, progress and endings."""
