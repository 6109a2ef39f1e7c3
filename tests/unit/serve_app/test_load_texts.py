"""What is sent: made-up texts by a mix, texts of a file, and in which order."""

import itertools
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.errors import ConfigError, DataError
from serve_app.load.mix import DEFAULT_MIX, parse_mix
from serve_app.load.texts import build_mix_source, read_source


def drawn(source, count, seed=0):
    return list(itertools.islice(source.draw(seed), count))


def text_of(outgoing):
    return json.loads(outgoing.body)["text"]


def write(tmp_path, name, data):
    file = tmp_path / name
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    return file


def test_a_mix_has_the_asked_words_and_shares():
    source = build_mix_source(parse_mix("75:5-20,25:200-400"), seed=1)

    requests = drawn(source, 4000)

    counts = Counter(request.text_class for request in requests)
    assert source.classes == ("5-20 words", "200-400 words")
    assert counts[0] / 4000 == pytest.approx(0.75, abs=0.035)  # Five standard errors.
    for request in requests:
        least, most = ((5, 20), (200, 400))[request.text_class]
        assert least <= len(text_of(request).split()) <= most


def test_classes_of_json_lines_are_drawn_as_often_as_they_stand_in_the_file(tmp_path):
    lines = [
        {"text": str(number), "class": "rare" if number % 10 == 3 else "usual"}
        for number in range(50)
    ]
    file = write(tmp_path, "t.jsonl", "\n".join(map(json.dumps, lines)))

    source = read_source(file)

    names = Counter(source.classes[one.text_class] for one in drawn(source, 2000))
    assert names["rare"] / 2000 == pytest.approx(0.1, abs=0.035)  # Five standard errors.
    assert json.loads(source.bodies[source.classes.index("rare")][0]) == {"text": "3"}


@pytest.mark.slow
@given(seed=st.integers(0, 2**31))
def test_a_seed_fixes_texts_and_order(seed):
    entries = parse_mix("1:1-3,1:4-4")

    one, other = (drawn(build_mix_source(entries, seed=seed), 50, seed) for _ in range(2))

    assert one == other


@pytest.mark.parametrize(
    "mix",
    [
        "",
        "70",
        "70:5",
        "70:20-5",
        "0:1-2",
        "-1:1-2",
        "70:0-5",
        "70:5-99999",
        "70:5-20,",
        "a:b-c",
        "７０:5-20",
        "nan:1-2",
        "1:1-2;1:3-4",
        "1:" + "9" * 400 + "-1",
    ],
)
def test_a_mix_that_cannot_be_read_names_the_part_and_the_form(mix):
    with pytest.raises(ConfigError, match=rf"--mix: .*{DEFAULT_MIX}"):
        parse_mix(mix)


def test_a_mix_is_of_few_different_parts():
    with pytest.raises(ConfigError, match="at most 6"):
        parse_mix(",".join(f"1:{n}-{n}" for n in range(1, 8)))
    with pytest.raises(ConfigError, match="twice"):
        parse_mix("1:5-9,2:5-9")


def test_lines_of_a_file_are_each_sent_once_before_one_comes_again(tmp_path):
    file = write(tmp_path, "texts.txt", "\ufeffone\r\n\n  two  \nthree ünï 中\n")

    sent = [text_of(request) for request in drawn(read_source(file), 6)]

    assert sorted(sent[:3]) == ["  two  ", "one", "three ünï 中"]
    assert sent[:3] == sent[3:]


def test_json_lines_give_text_and_pair(tmp_path):
    rows = [{"text": "a", "label": 1}, {"text": "b", "text_pair": "c"}]
    file = write(tmp_path, "texts.jsonl", "\n".join(map(json.dumps, rows)))

    bodies = [json.loads(body) for body in read_source(file).bodies[0]]

    assert bodies == [{"text": "a"}, {"text": "b", "text_pair": "c"}]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.txt", b"good\n\xff\xfe bad\n", r"t.txt:2: is not UTF-8 .*Save the file as UTF-8"),
        ("t.txt", b" \n\n", "t.txt: has no texts"),
        ("t.jsonl", b'{"text": "a"}\n{"text": \n', "t.jsonl:2: is no JSON"),
        ("t.jsonl", b'{"txt": "a"}', r"t.jsonl:1: has no field text \(got '\{\"txt"),
        ("t.jsonl", b'["a"]', "has no field text"),
        ("t.jsonl", b'{"text": 5}', "field text is no Unicode text"),
        ("t.jsonl", b'{"text": null}', "field text is no Unicode text"),
        ("t.jsonl", b'{"text": "a", "text_pair": 1}', "field text_pair is no Unicode text"),
        ("t.jsonl", b'{"text": "\\ud800"}', "no Unicode"),
        ("t.jsonl", b"[" * 100_000, "is no JSON"),
    ],
)
def test_a_line_that_is_no_text_is_named(tmp_path, name, data, message):
    with pytest.raises(DataError, match=message):
        read_source(write(tmp_path, name, data))


def test_a_file_that_is_missing_or_too_large_is_named(tmp_path):
    large = tmp_path / "large.txt"
    with large.open("wb") as file:
        file.truncate(2**28 + 1)

    with pytest.raises(ConfigError, match=r"--texts .*none.txt: cannot be read: No such file"):
        read_source(tmp_path / "none.txt")
    with pytest.raises(ConfigError, match=r"large.txt: is over the limit of .*Take a part"):
        read_source(large)
