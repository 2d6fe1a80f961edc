#!/usr/bin/python3
"""Makes the README's picture of a terminal from a real run: docs/picture.py PROGRAM SVG

As root, with tmux. The run is ann's, on a machine named web1 with a home of its own; both are gone afterwards. What is
typed is in `scene`: whoever changes what it shows looks at the picture, and makes it anew.
"""

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata

COLUMNS, ROWS = 124, 17

# A cell of the grid, in pixels, as monospaced fonts of this size have it.
FONT, WIDE, HIGH = 14, 8.43, 19

PALETTE = [
    "#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9",
    "#7f8797", "#ff7b86", "#b5e890", "#ffd68a", "#82c4ff", "#e19df5", "#7ad7e0", "#ffffff",
]
PAPER, INK = "#1e222a", "#d8dee9"

ANN, HOME = "4242", "/home/ann"


class Terminal:
    """A tmux with one window, and another for what happens elsewhere."""

    def __init__(self, folder):
        self.folder = folder
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "picture", "-x", str(COLUMNS), "-y", str(ROWS), *self.shell())
        self.tmux("set-option", "-g", "status", "off")
        self.tmux("new-window", "-d", "-n", "elsewhere", *self.shell())

    def shell(self):
        return ["bash", "--noprofile", "--rcfile", f"{self.folder}/rc", "-i"]

    def tmux(self, *words):
        command = ["tmux", "-S", f"{self.folder}/tmux", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def types(self, text, window="0"):
        self.tmux("send-keys", "-t", f"picture:{window}", "-l", text)
        self.tmux("send-keys", "-t", f"picture:{window}", "Enter")

    def screen(self, *how):
        return self.tmux("capture-pane", "-p", "-t", "picture:0", *how).rstrip("\n")

    def sees(self, pattern):
        deadline = time.monotonic() + 20
        while not re.search(pattern, self.screen()):
            if time.monotonic() > deadline:
                sys.exit(f"no {pattern!r} on the screen:\n{self.screen()}")
            time.sleep(0.05)


def scene(terminal):
    """What is done, up to the moment that the picture shows."""
    terminal.sees(r"\$$")
    terminal.types("tenure run --note v41 production -- ./deploy 41", "elsewhere")
    held = ["tenure", "status", "--json", "production"]
    while b'"held"' not in subprocess.run(held, capture_output=True).stdout:
        time.sleep(0.05)
    time.sleep(3)  # so that it is not as if all had begun at once
    terminal.types("tenure run production -- ./deploy 42")
    terminal.sees(r"production is held by [^$]*\$$")
    terminal.types("tenure status")
    terminal.sees(r"NAME[^$]*\$$")
    terminal.types("tenure run --wait 10m --note v42 production -- ./deploy 42")
    # The line of who waits has been there for some seconds.
    terminal.sees(r"waiting for production [4-9]s")


def colour(codes):
    """The colour that an extended SGR code names, and what is left of the codes."""
    if codes[:1] == [2]:
        return "#%02x%02x%02x" % tuple(codes[1:4]), codes[4:]
    number, rest = codes[1], codes[2:]
    if number < 16:
        return PALETTE[number], rest
    if number >= 232:
        return "#%02x%02x%02x" % ((8 + 10 * (number - 232),) * 3), rest
    steps = [0, 95, 135, 175, 215, 255]
    number -= 16
    return "#%02x%02x%02x" % (steps[number // 36], steps[number // 6 % 6], steps[number % 6]), rest


def styled(style, codes):
    """A style after an SGR sequence."""
    style = dict(style)
    while codes:
        code, codes = codes[0], codes[1:]
        if code == 0:
            style = {}
        elif code in (1, 2, 3, 4, 7):
            style[code] = True
        elif code == 22:
            style.pop(1, None), style.pop(2, None)
        elif code in (23, 24, 27):
            style.pop(code - 20, None)
        elif code in (38, 48):
            style[code], codes = colour(codes)
        elif code in (39, 49):
            style.pop(code - 1, None)
        elif 30 <= code % 60 < 38:
            style[38] = PALETTE[code % 60 - 30 + (8 if code >= 90 else 0)]
        elif 40 <= code % 60 < 48:
            style[48] = PALETTE[code % 60 - 40 + (8 if code >= 100 else 0)]
    return style


def runs(line, style):
    """The pieces of a line that look alike: column, width, text, style; and the style after it."""
    column, pieces = 0, []
    for part in re.split("(\x1b\\[[0-9;]*m)", line):
        if part.startswith("\x1b"):
            style = styled(style, [int(code or 0) for code in part[2:-1].split(";")])
        elif part:
            width = sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in part)
            pieces.append((column, width, part, style))
            column += width
    return pieces, style


def draw(screen):
    """The SVG of a screen."""
    lines = screen.split("\n")
    wide, high = COLUMNS * WIDE + 32, len(lines) * HIGH + 56
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{high:.0f}" '
        f'viewBox="0 0 {wide:.0f} {high:.0f}" font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" '
        f'font-size="{FONT}">',
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
    ]
    out += [f'<circle cx="{20 + 18 * at}" cy="18" r="5.5" fill="#4c566a"/>' for at in range(3)]
    style = {}
    for row, line in enumerate(lines):
        pieces, style = runs(line, style)
        for column, width, text, look in pieces:
            ink, paper = look.get(38, INK), look.get(48)
            if look.get(7):
                ink, paper = paper or PAPER, ink
            x, y = 16 + column * WIDE, 40 + row * HIGH
            if paper:
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{width * WIDE:.1f}" height="{HIGH}" fill="{paper}"/>')
            # Its place is said for each word, so that a font of other widths spoils no column.
            for word in re.finditer(r"\S+( \S+)*", text):
                before = sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text[: word.start()])
                how = f' fill="{ink}"' + ' font-weight="bold"' * bool(look.get(1)) + ' opacity="0.6"' * bool(look.get(2))
                how += ' font-style="italic"' * bool(look.get(3)) + ' text-decoration="underline"' * bool(look.get(4))
                out.append(f'<text x="{x + before * WIDE:.1f}" y="{y + 14}"{how}>{html.escape(word[0], quote=False)}</text>')
    return "\n".join([*out, "</svg>", ""])


def apart(program, picture):
    """Makes the machine that the picture shows, has ann at work there, and draws what she sees."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copy(program, f"{folder}/tenure")
        with open("/etc/passwd") as known, open(f"{folder}/passwd", "w") as ours:
            others = [line for line in known if line.split(":")[2] != ANN]
            ours.writelines([*others, f"ann:x:{ANN}:{ANN}::{HOME}:/bin/bash\n"])
        for words in [
            ["hostname", "web1"],
            ["mount", "--bind", f"{folder}/passwd", "/etc/passwd"],
            ["mount", "-t", "tmpfs", "tmpfs", "/home"],
            ["install", "-d", "-o", ANN, "-g", ANN, HOME],
        ]:
            subprocess.run(words, check=True)
        with open(f"{HOME}/rc", "w") as rc:
            rc.write("PS1='\\[\\e[1;32m\\]ann@web1\\[\\e[0m\\]:\\[\\e[1;34m\\]\\w\\[\\e[0m\\]$ '\n")
        with open(f"{HOME}/deploy", "w") as job:
            job.write("#!/bin/sh\nexec sleep 600\n")
        os.chmod(f"{HOME}/deploy", 0o755)
        # Nothing of whoever makes the picture is in it.
        environment = {
            "HOME": HOME, "USER": "ann", "SHELL": "/bin/bash", "TERM": "xterm-256color", "LC_ALL": "C.UTF-8",
            "PATH": f"{folder}:/usr/bin:/bin", "TENURE_DB": f"{HOME}/locks.db",
        }
        become = ["setpriv", "--reuid", ANN, "--regid", ANN, "--clear-groups"]
        words = [*become, sys.executable, os.path.realpath(__file__), "--scene"]
        ran = subprocess.run(words, env=environment, cwd=HOME, stdout=subprocess.PIPE, text=True)
        if ran.returncode:
            sys.exit(ran.returncode)
    with open(picture, "w") as svg:
        svg.write(draw(ran.stdout))


def play():
    """Ann's part: prints the screen, with its colours."""
    terminal = Terminal(HOME)
    try:
        scene(terminal)
        print(terminal.screen("-e"), end="")
    finally:
        terminal.tmux("kill-server")


if __name__ == "__main__":
    if sys.argv[1:] == ["--scene"]:
        play()
    elif sys.argv[1] == "--apart":
        apart(*sys.argv[2:])
    else:
        paths = [os.path.realpath(path) for path in sys.argv[1:]]
        namespaces = ["--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvp("unshare", ["unshare", *namespaces, sys.executable, os.path.realpath(__file__), "--apart", *paths])
