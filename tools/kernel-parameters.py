#!/usr/bin/env python3
"""Write the names of kernel parameters that crates/audit/src/cmdline/names.txt holds.

Usage: tools/kernel-parameters.py VERSION=FILE... > crates/audit/src/cmdline/names.txt

Each FILE is Documentation/admin-guide/kernel-parameters.txt of that kernel, or its
Documentation/arch/x86/x86_64/boot-options.rst (several files of one version are joined).
An entry begins at the first tab (in boot-options.rst after two or three spaces). Names with a dot
belong to a module or to user space and are left out: `apus audit cmdline` accepts any of those.
Names alone are taken: they are facts, the text is not.
"""

import re
import sys

ENTRY = re.compile(r"^(?:\t| {2,3})([A-Za-z][A-Za-z0-9_\-/]*)(?=\[?=|[ \t]|$|\[|,|:|<|\{)(?!\.)")


def names(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        is_options = path.endswith(".rst")
        for line in file:
            if is_options != line.startswith(" "):
                continue
            found = ENTRY.match(line)
            # The document's own tags ("ACPI  ACPI support is enabled.") are no parameters.
            if found and len(found.group(1)) > 1 and found.group(1).isupper():
                continue
            # Of boot-options.rst only lines that hold an option, and no sentence.
            if found and (not is_options or len(line.split()) == 1 or "=" in line.split()[0]):
                yield found.group(1)


def main():
    known, versions = {}, []
    for argument in sys.argv[1:]:
        version, path = argument.split("=", 1)
        if version not in versions:
            versions.append(version)
        for name in names(path):
            known.setdefault(name, []).append(version)
    if not known:
        sys.exit(__doc__)
    print("# Names of kernel parameters, and the kernels whose documents have them: Documentation/admin-guide/")
    print("# kernel-parameters.txt and Documentation/arch/x86/x86_64/boot-options.rst of Linux " + ", ".join(versions) + ".")
    print("# Written by tools/kernel-parameters.py; sorted, dashes as underscores.")
    joined = {}
    for name, of in known.items():
        joined.setdefault(name.replace("-", "_"), []).extend(of)
    for name in sorted(joined):
        print(name, *[version for version in versions if version in joined[name]])


main()
