"""What the code must look like whatever it does: imports, packages, generated files."""
