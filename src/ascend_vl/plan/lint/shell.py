"""As much of a shell as commands in documents need: words, quotes, continuations, assignments, with line numbers."""

import re
from dataclasses import dataclass, field

SMART = {"“": '"', "”": '"', "‘": "'", "’": "'", "–": "--", "—": "--", "−": "-", "\u00a0": " ", "\u3000": " "}
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_PROMPTS = ("$", ">")
_WRAPPERS = ("sudo", "nohup", "exec", "time", "env")
_STARTS = re.compile(
    r"^(sudo |nohup |exec |env |time |\$ |> )?"
    r"(([\w./-]*/)?(vllm|python3?|docker|podman|nerdctl|export|git|patch|cp|mv|sed|bash|sh|cd|pip3?)(\s|$)|[A-Za-z_]\w*=)"
)


@dataclass(frozen=True)
class Word:
    """One word as the shell sees it, the line it begins on (from 1), and whether part of it was in quotes."""

    text: str
    line: int
    quoted: bool = False


@dataclass(frozen=True)
class Command:
    """A simple command: its words, and the assignments written before it."""

    words: tuple[Word, ...]
    assignments: tuple[tuple[str, Word], ...] = ()

    @property
    def line(self) -> int:
        """Line of its first word."""
        return self.words[0].line


@dataclass(frozen=True)
class Problem:
    """Something wrong with the text itself: the id of its row, the line, and what stands there."""

    rule: str
    line: int
    what: str


@dataclass
class Script:
    """All commands of a text, the variables it sets (last value), and the lines that are not commands."""

    commands: list[Command] = field(default_factory=list)
    variables: dict[str, Word] = field(default_factory=dict)
    exported: dict[str, Word] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    prose: list[tuple[int, str]] = field(default_factory=list)


def read_script(text: str) -> Script:
    """The commands of a script, or of a document with commands in it. Never raises."""
    script = Script()
    lines = text.split("\n")
    index = 0
    while index < len(lines):
        if not _begins_command(lines[index]):
            if lines[index].strip() and not lines[index].lstrip().startswith("#"):
                script.prose.append((index + 1, lines[index]))
            index += 1
            continue
        parts: list[tuple[int, str]] = []
        while True:
            following = lines[index + 1] if index + 1 < len(lines) else None
            line, continued = _continuation(lines[index], index + 1, script, following)
            parts.append((index + 1, line))
            index += 1
            if not continued or index >= len(lines):
                break
            while index < len(lines) and lines[index].lstrip().startswith("#"):
                script.problems.append(Problem("lint-comment-in-continuation", index + 1, lines[index].strip()))
                index += 1
            if index >= len(lines):
                break
        _commands(parts, script)
    return script


def _begins_command(line: str) -> bool:
    return bool(_STARTS.match(line.lstrip()))


def _continuation(line: str, number: int, script: Script, following: str | None) -> tuple[str, bool]:
    """The line without its continuation, and whether the command goes on in the next one.

    A line of flags after a line that ends without a backslash was meant to go on.
    """
    smart = [char for char in line if char in SMART]
    if smart:
        script.problems.append(Problem("lint-smart-quote", number, "".join(dict.fromkeys(smart))))
        line = "".join(SMART.get(char, char) for char in line)
    match = re.search(r"\\([ \t\r]*)$", line)
    if match is None:
        lost = following is not None and re.match(r"^\s*--?[A-Za-z]", following) is not None
        if lost:
            script.problems.append(Problem("lint-broken-continuation", number, line.strip()))
        return line, lost
    if match.group(1) and following is not None:
        script.problems.append(Problem("lint-broken-continuation", number, line.strip()))
    return line[: match.start()], True


def _commands(parts: list[tuple[int, str]], script: Script) -> None:
    words, problem = split_words(parts)
    if problem is not None:
        script.problems.append(problem)
    current: list[Word] = []
    for word in [*words, Word(";", 0)]:
        if word.text in (";", "&&", "||", "|", "&") and not word.quoted:
            if current:
                _add(current, script)
            current = []
        else:
            current.append(word)


def _add(words: list[Word], script: Script) -> None:
    while words and (words[0].text in _PROMPTS or words[0].text in _WRAPPERS):
        words = words[1:]
    assignments: list[tuple[str, Word]] = []
    while words and (match := _ASSIGNMENT.match(words[0].text)):
        assignments.append((match.group(1), Word(_filled(match.group(2), script), words[0].line, words[0].quoted)))
        words = words[1:]
    if not words:
        for name, word in assignments:
            script.variables[name] = word
        return
    if words[0].text == "export":
        for word in words[1:]:
            if match := _ASSIGNMENT.match(word.text):
                script.variables[match.group(1)] = Word(_filled(match.group(2), script), word.line, word.quoted)
                script.exported[match.group(1)] = script.variables[match.group(1)]
        return
    filled = tuple(Word(_filled(word.text, script), word.line, word.quoted) for word in words)
    script.commands.append(Command(filled, tuple(assignments)))
    _inner(filled, script)


def _inner(words: tuple[Word, ...], script: Script) -> None:
    """Commands inside a word, as in bash -c "vllm serve ..."."""
    for word in words:
        if word.quoted and re.search(r"\bvllm\s+serve\b", word.text):
            inner = read_script(word.text)
            for command in inner.commands:
                moved = tuple(Word(item.text, item.line + word.line - 1, item.quoted) for item in command.words)
                script.commands.append(Command(moved, command.assignments))
            script.exported |= inner.exported


def _filled(text: str, script: Script) -> str:
    def value(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        return script.variables[name].text if name in script.variables else match.group(0)

    return _VARIABLE.sub(value, text)


def split_words(parts: list[tuple[int, str]]) -> tuple[list[Word], Problem | None]:
    """Words of the joined lines, operators as words of their own; a Problem when a quote stays open."""
    words: list[Word] = []
    text, started, quoted, quote, quote_line = "", 0, False, "", 0
    for number, line in parts:
        position = 0
        while position < len(line):
            char = line[position]
            if quote:
                if char == quote:
                    quote = ""
                elif char == "\\" and quote == '"' and line[position + 1 : position + 2] in ('"', "\\", "$", "`"):
                    position += 1
                    text += line[position]
                else:
                    text += char
            elif char in "'\"":
                quote, quote_line, quoted = char, number, True
                started = started or number
            elif char.isspace():
                if started:
                    words.append(Word(text, started, quoted))
                text, started, quoted = "", 0, False
            elif char == "#" and not started:
                break
            elif char in ";&|":
                if started:
                    words.append(Word(text, started, quoted))
                text, started, quoted = "", 0, False
                double = line[position : position + 2] in ("&&", "||")
                words.append(Word(char * 2 if double else char, number))
                position += double
            else:
                if char == "\\" and position + 1 < len(line):
                    position += 1
                text += line[position]
                started = started or number
            position += 1
        if quote:
            text += "\n"
        elif started:
            words.append(Word(text, started, quoted))
            text, started, quoted = "", 0, False
    if quote:
        words.append(Word(text, started, True))
        return words, Problem("lint-open-quote", quote_line, quote)
    return words, None
