"""How the bundled demo checkpoint was made: a small world of shapes, the published layout, one run."""
