"""What the vocabularies of random checkpoints are made of: words of household robotics, and syllables."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator

CHARACTERS = string.ascii_letters + string.digits + string.punctuation + "éèüöäßñç°"
_WORDS = """
the a an and or of to in into on onto from off up down with at by near it is this that left right front
back top bottom middle side first second third one two three four five red green blue yellow orange
black white purple small big large tall round square empty full open closed pick place put push pull
move lift lower grasp grab hold release drop take give bring turn rotate flip slide stack close press
pour wipe fold insert remove switch stop start wait go return reach point tape box cup drawer block cube
ball bowl plate pan pot mug bottle can lid book towel cloth sponge spoon fork knife marker pen key
button door handle shelf table basket bin tray stove microwave cabinet rack wine cream cheese butter
ketchup sauce soup milk juice moka coffee robot arm gripper hand object then please carefully slowly
next between behind under over inside outside
"""
# fmt: off
_ONSETS = (
    "b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z", "br", "ch",
    "cl", "cr", "dr", "fl", "fr", "gr", "pl", "pr", "qu", "sh", "sl", "sp", "st", "th", "tr", "",
)
# fmt: on
_NUCLEI = ("a", "e", "i", "o", "u", "ai", "ea", "ee", "ie", "oo", "ou", "y")
_CODAS = ("", "n", "r", "s", "t", "l", "d", "m", "ng", "ck", "st", "nt", "ly", "ment", "tion", "able")

WORDS = tuple(_WORDS.split())


def syllables() -> Iterator[str]:
    """Syllables, then pairs of syllables; some occur more than once."""
    single = itertools.product(_ONSETS, _NUCLEI, _CODAS)
    double = itertools.product(_ONSETS, _NUCLEI, _ONSETS[:20], _NUCLEI[:5])
    return map("".join, itertools.chain(single, double))
