"""A cold tier that gets another place: by a move that copies it, by an address alone, or for the first time."""
