"""Puts the jar and the jobs into every wheel: a wheel without the jar would encrypt nothing."""

import glob
import os
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))


class BuildWithJar(build_py):
    """Builds the jar before package data is collected, always: an older one would not match the Python half.

    An editable install gets it from ``make jar`` instead, and has the jobs beside the package.
    """

    def run(self):
        if not self.editable_mode:
            self.announce("building the jar (this needs javac and pyspark)", level=2)
            if subprocess.run([sys.executable, os.path.join(HERE, "jars", "build.py")], check=False).returncode:
                raise SystemExit("the jar could not be built, and a wheel without it would encrypt nothing; see above")
        super().run()
        if not self.editable_mode:
            target = os.path.join(self.build_lib, "sparkcrypt", "jobs")
            self.mkpath(target)
            for job in glob.glob(os.path.join(HERE, "jobs", "*.py")):
                self.copy_file(job, target)


setup(cmdclass={"build_py": BuildWithJar})
