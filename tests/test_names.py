"""A name stands for one thing: who has met a class knows it wherever its name appears."""

import re
from collections import defaultdict

from tests.test_mirror import ROOMS, ROOT


def test_no_two_public_classes_share_a_name() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for room in ROOMS:
        for file in (ROOT / room).rglob("*.py"):
            for name in re.findall(r"^class (\w+)", file.read_text(), re.MULTILINE):
                homes[name].append(str(file.relative_to(ROOT)))
    twins = {name: files for name, files in homes.items() if len(files) > 1 and not name.startswith("_")}
    assert twins == {}
