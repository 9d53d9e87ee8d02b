"""The story the demo tells, step by step, with the very commands a user would type."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from floodmark.demo.shop import Shop
from floodmark.engines.java import FEW_ROWS
from floodmark.errors import ConfigError

MARKER = ".floodmark-demo"
"""Lies in every folder the demo made, so that it never removes a folder of the user's."""

console = Console(highlight=False)


def tell(folder: str) -> int:
    """Make the project, tell the story, return 0 if every truth holds in the end."""
    started = time.monotonic()
    os.environ.setdefault("SPARK_SUBMIT_OPTS", FEW_ROWS)
    root = make_project(Path(folder).absolute())
    with inside(root), working_day(root) as shop:
        first_batch()
        second_batch_fails_and_is_held(shop)
        killed_and_recovered(shop)
        is_true = nothing_lost_nothing_doubled(shop)
    what_next(root, time.monotonic() - started)
    return 0 if is_true else 1


def make_project(root: Path) -> Path:
    """A fresh copy of the demo project; refuses a folder that the demo did not make."""
    fresh_folder(root, "floodmark demo another-folder")
    template = Path(__file__).parent / "project"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(template, root, ignore=ignored, dirs_exist_ok=True)
    return root


def fresh_folder(root: Path, elsewhere: str) -> None:
    """An empty folder with our marker; refuses one that the demo did not make."""
    if root.exists() and any(root.iterdir()) and not (root / MARKER).exists():
        raise ConfigError(
            "FM-CONFIG-007",
            f"the folder {root} is not empty",
            rule="folder_in_use",
            allowed="a folder that does not exist, or one an earlier demo made",
            state="nothing was changed",
            next=elsewhere,
        )
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    (root / MARKER).touch()


@contextmanager
def inside(root: Path) -> Iterator[None]:
    """Work in the project's folder, as a user would."""
    before = Path.cwd()
    os.chdir(root)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def working_day(root: Path) -> Iterator[Shop]:
    """A Spark session and the shop's tables."""
    from floodmark.engines.spark import local_session

    say("A small shop lake", "three Delta tables: orders, customers, payments; two pipelines")
    with console.status("starting Spark"):
        spark = local_session(app_name="floodmark demo")
    shop = Shop(spark, root / "lake")
    with console.status("filling the lake: 2,000 orders, 200 customers, 1,500 payments"):
        shop.open()
    try:
        yield shop
    finally:
        spark.stop()


def first_batch() -> None:
    say("First batch", "nothing is committed yet, so the plan reads each table whole")
    command("plan")
    command("run")


def second_batch_fails_and_is_held(shop: Shop) -> None:
    with console.status("a day passes: new orders, corrections, a cancelled order, a refund"):
        shop.a_day()
    say("Second batch", "updates and deletes happened: the plan reads only the change")
    command("plan")
    say("The bank is down", "one pipeline fails on purpose; only its upstream is held")
    with environment(SHOP_BANK_IS_DOWN="1"):
        command("run", expected=1)
    command("lag")
    say("The bank is back", "the failed pipeline is retried with the very same range")
    command("retry", open_batch())


def killed_and_recovered(shop: Shop) -> None:
    with console.status("evening: more orders and payments"):
        shop.an_evening()
    say("Killed in the middle", "kill -9 right after the rows are in, before anybody noted it")
    kill_a_run()
    command("status", open_batch())
    say("And again", "the next run finds the receipt in the table and does not write twice")
    command("run")


def nothing_lost_nothing_doubled(shop: Shop) -> bool:
    say("Nothing lost, nothing doubled", "the targets against the sources, and every guarantee")
    is_true = show_truths(shop.truths())
    command("verify")
    return is_true


def show_truths(truths: Sequence[tuple[str, bool]]) -> bool:
    """One line each; whether all of them hold."""
    for text, holds in truths:
        console.print(f"  {'[green]yes[/]' if holds else '[bold red]NO[/]'}  {text}")
    return all(holds for _, holds in truths)


def what_next(root: Path, seconds: float) -> None:
    say("Yours to try", f"the demo took {seconds:.0f} s; its project is {shown(root)}")
    program = program_from(root)
    show_commands(
        f"cd {shown(root)}",
        f"{program} status",
        f"{program} history",
        f"{program} plan",
        "less jobs/shop.py floodmark.yaml",
    )


def shown(root: Path) -> Path:
    """The folder as seen from here."""
    return Path(os.path.relpath(root))


def program_from(root: Path) -> Path:
    """The command as it is typed inside of a folder."""
    return Path(os.path.relpath(Path(sys.executable).with_name("floodmark"), root))


def show_commands(*lines: str) -> None:
    """Commands to type, one a line."""
    for line in lines:
        console.print(f"  [cyan]{escape(line)}[/]")


def say(title: str, text: str) -> None:
    console.print()
    console.rule(f"[bold]{title}[/]", align="left")
    console.print(f"[dim]{text}[/]")


def command(*arguments: str, expected: int = 0) -> None:
    """Show a command and run it in this process, with the session that is there.

    A command that ends otherwise than the story says ends the story.
    """
    from floodmark.cli.main import main

    console.print(f"\n[bold cyan]$ floodmark {escape(' '.join(arguments))}[/]")
    sys.stdout.flush()
    code = main([*arguments])
    sys.stdout.flush()
    if code != expected:
        raise SystemExit(f"the demo stops here: that should have ended with {expected}, not {code}")


def open_batch() -> str:
    """The id of the batch that waits."""
    from floodmark.coordinator import Coordinator

    return str(Coordinator("lake/_control").current_plan()[0].batch_id)


def kill_a_run() -> None:
    """`floodmark run` as a process of its own that dies by SIGKILL after the sink's commit."""
    shown = "FLOODMARK_FAILPOINT=sink.after_commit floodmark run"
    console.print(f"\n[bold cyan]$ {shown}[/]")
    with console.status("a second process plans, reads, writes ..."):
        done = subprocess.run(
            [sys.executable, "-m", "floodmark", "run"],
            env={**os.environ, "FLOODMARK_FAILPOINT": "sink.after_commit"},
            capture_output=True,
            check=False,
        )
    if done.returncode != -signal.SIGKILL:
        console.print(escape(done.stderr.decode(errors="replace")))
        raise SystemExit(f"the run should have been killed, but ended with {done.returncode}")
    console.print("  Killed")


@contextmanager
def environment(**values: str) -> Iterator[None]:
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)
