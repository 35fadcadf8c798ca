"""The moving picture of the failover."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parents[2]))

from demo.picture import CYCLE_S, SWEPT, Failover, Part, draw

SVG = "{http://www.w3.org/2000/svg}"
SEEN = Failover(
    ["broker-1", "broker-2", "broker-3"],
    killed="broker-2",
    new_master="broker-3",
    begin_ms=-10.0,
    length_ms=60.0,
    parts=[Part("detection", -10.0, 45.0), Part("election", 35.0, 15.0)],
    acknowledged_ms=[-5000.0, -100.0, -10.0, 50.0, 70.0, 5000.0],
    summary="<all> kept",
)


def drawn(failover: Failover) -> ElementTree.Element:
    return ElementTree.fromstring(draw(failover))


def texts(picture: ElementTree.Element) -> list[str]:
    return [str(one.text) for one in picture.iter(f"{SVG}text")]


def test_each_message_of_the_window_is_a_stroke() -> None:
    strokes = [one for one in drawn(SEEN).iter(f"{SVG}line") if one.get("class") == "ack"]
    places = [float(one.get("x1", "")) for one in strokes]
    assert len(places) == 4 and places == sorted(places), "two are far outside"


def test_the_brokers_and_the_parts_are_named() -> None:
    said = texts(drawn(SEEN))
    assert said.count("broker-2") == 2 and "SIGKILL, for good" in said and "the new master" in said
    assert {"60 ms without an acknowledgement", "detection: 45 ms", "election: 15 ms", "<all> kept", "kill"} <= {*said}
    assert "broker-2, the master, is killed" in str(drawn(SEEN).get("aria-label"))


def test_what_comes_later_appears_later_and_all_of_it_is_shown_in_the_end() -> None:
    shares = [float(one) for one in re.findall(r"([\d.]+)%, 100% \{ opacity: 1 \}", draw(SEEN))]
    assert len(shares) > 6 and 0 <= min(shares) < max(shares) < SWEPT
    assert f"{CYCLE_S}s" in draw(SEEN) and "prefers-reduced-motion: no-preference" in draw(SEEN)


def test_an_outage_of_seconds_is_drawn_as_well() -> None:
    long = drawn(replace(SEEN, length_ms=30_000.0, parts=[]))
    assert "30,000 ms without an acknowledgement" in texts(long)
    assert 2 < sum("ms" in one and one[0] in "+-" for one in texts(long)) <= 20
