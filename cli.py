"""Launcher: `python cli.py COMMAND` from a checkout."""

from solver.cli import app

if __name__ == "__main__":
    app(prog_name="hetplan")
