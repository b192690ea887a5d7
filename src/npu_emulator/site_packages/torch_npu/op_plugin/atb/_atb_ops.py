"""Registration of the ATB operators, which exist already here."""


def _register_atb_extensions() -> None:
    """Without effect."""
