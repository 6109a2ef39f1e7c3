import re
import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer
from tokenizers.models import WordLevel, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

from pipeline.contract.errors import FolderError, MissingFileError
from pipeline.contract.tokenization import (
    IGNORED_LABEL,
    TextEncoder,
    TextSettings,
    align_labels,
    build_text_encoder,
    clean_text,
    load_text_encoder,
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "film", "##s", "!"]
IDS = {word: index for index, word in enumerate(WORDS)}
PLAIN, HTML = TextSettings(max_seq_len=8), TextSettings(max_seq_len=8, strip_html=True)
NAUGHTY = [
    "",
    " \t\n\r\x0b\x0c\x85\xa0\u2028\u3000",
    "\x00\x00",
    "\ud800",
    "a\udfffb",
    "\u200b\u200d\ufeff",
    "\x01\x02\x1b[31m",
    "Ṱ̺̺̕o͞ ̷i̲̬͇̪͙n̝̗͕v̟̜̘̦͟o̶̙̰̠kè͚̮̺̪̹̱̤ ̖t̝͕̳̣̻̪͞h̼͓̲̦̳̘̲e͇̣̰̦̬͎ ̢̼̻̱̘h͚͎͙̜̣̲ͅi̦̲̣̰̤v̻͍e̺̭̳̪̰-m̢iͅn̖̺̞̲̯̰d̵̼̟͙̩̼̘̳",
    "الكل في المجمو عة",
    "田中さんにあげて下さい",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇺🇸",
    "' OR 1=1 -- \"; DROP TABLE users",
    "<script>alert(1)</script>",
    "&lt;b&gt; &#0; &#xD800; &#x1F600; &nbsp;&bogus;",
    "<" * 300 + ">" * 300,
    "[CLS] [SEP] [PAD] [MASK]",
    "$HOME `ls` ${jndi:ldap://x} %s %n {0}",
    "\u202etest\u202c",
    "x" * 20_000,
]


def make_tokenizer():
    tokenizer = Tokenizer(WordPiece(IDS, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = BertProcessing(("[SEP]", IDS["[SEP]"]), ("[CLS]", IDS["[CLS]"]))
    return tokenizer


def words_of(encoded):
    return [WORDS[index] for index in encoded.input_ids]


@pytest.fixture(scope="module")
def encoder():
    return TextEncoder(make_tokenizer(), PLAIN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  a \t good\n\nfilm ", "a good film"),
        ("nul\x00byte", "nul byte"),
        ("lone \ud800 surrogate", "lone surrogate"),
        ("joined 👩‍👧 stays", "joined 👩‍👧 stays"),
        ("<br/>kept &amp; as is", "<br/>kept &amp; as is"),
        ("\u200b\u200b", ""),
        ("\x00 \x1b \ufffd", ""),
        ("", ""),
    ],
)
def test_clean_text_without_html(text, expected):
    assert clean_text(text, PLAIN) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("good<br /><br />film", "good film"),
        ('<a href="x">a</a> film', "a film"),
        ("a &amp; b &lt;i&gt;", "a & b <i>"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ("i <3 films", "i <3 films"),
        ("<!-- remark -->film", "film"),
        ("&#0;film&#xD800;", "\ufffdfilm\ufffd"),
        ("<p></p>", ""),
    ],
)
def test_clean_text_with_html(text, expected):
    assert clean_text(text, HTML) == expected


@pytest.mark.parametrize("settings", [PLAIN, HTML], ids=["plain", "html"])
@given(text=st.text(st.characters(codec=None), max_size=60))
def test_clean_text_gives_valid_unicode_with_single_blanks(text, settings):
    cleaned = clean_text(text, settings)

    cleaned.encode("utf-8")
    assert "\x00" not in cleaned
    assert cleaned == " ".join(cleaned.split())


@pytest.mark.slow
def test_every_kind_of_blank_becomes_one_space():
    codes = [code for code in range(1, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    every = "a".join(map(chr, codes))

    assert clean_text(every, PLAIN) == re.sub(r"\s+", " ", every).strip()


@given(text=st.text(st.characters(codec=None), max_size=60))
def test_cleaning_a_plain_text_twice_changes_nothing(text):
    assert clean_text(clean_text(text, PLAIN), PLAIN) == clean_text(text, PLAIN)


@pytest.mark.parametrize("text", NAUGHTY, ids=range(len(NAUGHTY)))
@pytest.mark.parametrize("settings", [PLAIN, HTML], ids=["plain", "html"])
def test_naughty_texts_are_encoded_within_the_limit(text, settings):
    encoder = TextEncoder(make_tokenizer(), settings)

    encoded = encoder.encode_texts([encoder.clean(text)])[0]

    assert 2 <= len(encoded.input_ids) <= settings.max_seq_len
    assert (words_of(encoded)[0], words_of(encoded)[-1]) == ("[CLS]", "[SEP]")


@pytest.mark.parametrize("text", ["\u200b", "\x01\x02", "\ud800", "\x00", "\u2060\ufeff"])
def test_a_text_that_cleans_to_something_shows_something(text):
    assert clean_text(text, PLAIN) == ""
    assert all(unicodedata.category(character).startswith("C") for character in text)


def test_special_tokens_surround_a_text(encoder):
    encoded = encoder.encode_texts(["a good films!"])[0]

    assert words_of(encoded) == ["[CLS]", "a", "good", "film", "##s", "!", "[SEP]"]
    assert encoded.word_ids.tolist() == [-1, 0, 1, 2, 2, 3, -1]
    assert encoded.input_ids.dtype == encoded.word_ids.dtype == np.int32
    assert not encoded.is_truncated


def test_truncation_keeps_the_limit_and_ends_with_sep(encoder):
    exact, over = encoder.encode_texts(["a " * 6, "a " * 7])

    assert (len(exact.input_ids), exact.is_truncated) == (8, False)
    assert (len(over.input_ids), over.is_truncated) == (8, True)
    assert words_of(over)[-1] == "[SEP]"


def test_a_text_has_the_same_ids_whatever_its_batch_mates(encoder):
    alone = encoder.encode_texts(["good film"])[0]
    mixed = encoder.encode_texts(["a " * 50, "good film", ""])[1]

    assert alone.input_ids.tolist() == mixed.input_ids.tolist()


def test_the_tokenizers_own_truncation_and_padding_are_switched_off():
    tokenizer = make_tokenizer()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=16)

    encoded = TextEncoder(tokenizer, PLAIN).encode_texts(["a a a a a"])[0]

    assert len(encoded.input_ids) == 7


def test_words_keep_their_index_through_sub_tokens(encoder):
    encoded = encoder.encode_words([["a", "films", "good!"]])[0]

    assert words_of(encoded) == ["[CLS]", "a", "film", "##s", "good", "!", "[SEP]"]
    assert encoded.word_ids.tolist() == [-1, 0, 1, 1, 2, 2, -1]


def test_a_word_that_leaves_no_token_does_not_shift_the_others(encoder):
    encoded = encoder.encode_words([["a", "\u200b", "film"]])[0]

    assert encoded.word_ids.tolist() == [-1, 0, 2, -1]
    assert align_labels([5, 6, 7], encoded.word_ids).tolist() == [-100, 5, 7, -100]


def test_align_labels_puts_a_words_label_on_its_first_token():
    labels = align_labels([4, 7], np.array([-1, 0, 0, 1, -1]))

    assert labels.tolist() == [IGNORED_LABEL, 4, IGNORED_LABEL, 7, IGNORED_LABEL]
    assert labels.dtype == np.int32


@pytest.mark.parametrize("token", ["[SEP]", "[CLS]", "[PAD]", "[MASK]", "[UNK]"])
def test_special_tokens_that_a_user_types_are_letters(token):
    built = BertWordPieceTokenizer({**IDS, "[MASK]": len(IDS)}, lowercase=True)
    encoder = TextEncoder(Tokenizer.from_str(built.to_str()), TextSettings(max_seq_len=32))
    reloaded = build_text_encoder(encoder.to_json(), encoder.settings)

    special = set(encoder.encode_texts([""])[0].input_ids.tolist())
    for made in (encoder, reloaded):
        typed = [
            made.encode_texts([f"a {token} film"])[0].input_ids[1:-1].tolist(),
            made.encode_words([["a", token, "film"]])[0].input_ids[1:-1].tolist(),
            made.encode_batch([f"a {token} film"]).input_ids[1:-1].tolist(),
            made.encode_pairs([(token, "a film")])[0].input_ids[1:4].tolist(),
        ]
        for ids in typed:
            assert not special & set(ids)
            assert IDS["[PAD]"] not in ids


@pytest.fixture(scope="module")
def pair_encoder():
    built = BertWordPieceTokenizer({**IDS, "[MASK]": len(IDS)}, lowercase=True)
    return TextEncoder(Tokenizer.from_str(built.to_str()), PLAIN)


def test_pair_is_both_texts_with_sep_after_each(pair_encoder):
    encoded = pair_encoder.encode_pairs([("a good", "films")])[0]

    assert words_of(encoded) == ["[CLS]", "a", "good", "[SEP]", "film", "##s", "[SEP]"]
    assert not encoded.is_truncated


def test_pair_over_the_limit_loses_tokens_of_the_longer_text_first(pair_encoder):
    exact, over, second = pair_encoder.encode_pairs(
        [("a a a", "! !"), ("a a a a a a", "! !"), ("a a", "! ! ! ! !")]
    )

    assert not exact.is_truncated
    assert words_of(over) == ["[CLS]", "a", "a", "a", "[SEP]", "!", "!", "[SEP]"]
    assert words_of(second) == ["[CLS]", "a", "a", "[SEP]", "!", "!", "!", "[SEP]"]
    assert over.is_truncated
    assert second.is_truncated


def test_tokenizer_that_does_not_part_pairs_and_a_tiny_limit_are_refused(pair_encoder):
    plain = Tokenizer(WordPiece(IDS, unk_token="[UNK]"))

    with pytest.raises(FolderError, match="no special token between the texts of a pair"):
        TextEncoder(plain, PLAIN).encode_pairs([("a", "b")])
    small = build_text_encoder(pair_encoder.to_json(), TextSettings(max_seq_len=4))
    with pytest.raises(FolderError, match=r"at least 5 for pairs of texts \(got 4\)"):
        small.encode_pairs([("a", "b")])


@pytest.mark.slow
@given(st.lists(st.text(st.sampled_from("agodfilms! "), max_size=40), max_size=8))
def test_the_fast_way_gives_the_same_ids_and_marks(texts):
    encoder = TextEncoder(make_tokenizer(), PLAIN)

    batch, single = encoder.encode_batch(texts), encoder.encode_texts(texts)

    assert batch.lengths.tolist() == [len(row.input_ids) for row in single]
    assert batch.input_ids.tolist() == [token for row in single for token in row.input_ids]
    assert batch.is_truncated.tolist() == [row.is_truncated for row in single]


def test_the_fast_way_takes_pairs_too(pair_encoder):
    pairs = [("a good", "film"), ("a a a a a a", "! !")]

    batch, single = pair_encoder.encode_batch(pairs), pair_encoder.encode_pairs(pairs)

    assert batch.input_ids.tolist() == [token for row in single for token in row.input_ids]
    assert batch.is_truncated.tolist() == [False, True]


def test_fingerprint_follows_settings_and_vocabulary(encoder):
    twin = build_text_encoder(encoder.to_json(), PLAIN)
    other = make_tokenizer()
    other.add_tokens(["new"])

    assert twin.fingerprint == encoder.fingerprint
    different = [
        TextEncoder(make_tokenizer(), HTML),
        TextEncoder(make_tokenizer(), TextSettings(max_seq_len=9)),
        TextEncoder(other, PLAIN),
    ]
    assert len({encoder.fingerprint, *(made.fingerprint for made in different)}) == 4


def test_a_saved_encoder_loads_to_the_same_ids(encoder, tmp_path):
    encoder.save(tmp_path)

    loaded = load_text_encoder(tmp_path, PLAIN)

    assert loaded.fingerprint == encoder.fingerprint
    assert (loaded.pad_token_id, loaded.vocab_size) == (0, len(WORDS))


def test_a_vocabulary_file_alone_makes_an_encoder(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDS, "[MASK]"]))

    encoded = load_text_encoder(tmp_path, PLAIN).encode_texts(["A good film"])[0]

    assert words_of(encoded) == ["[CLS]", "a", "good", "film", "[SEP]"]


def test_a_folder_without_a_tokenizer_is_refused_by_name(tmp_path):
    with pytest.raises(MissingFileError, match=r"neither tokenizer\.json nor vocab\.txt"):
        load_text_encoder(tmp_path, PLAIN)


def test_a_broken_tokenizer_file_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"version": 3}')

    with pytest.raises(FolderError, match="cannot be read as a tokenizer"):
        load_text_encoder(tmp_path, PLAIN)


def test_a_limit_that_holds_only_special_tokens_is_refused():
    with pytest.raises(FolderError, match=r"over the 2 special tokens \(got 2\)"):
        TextEncoder(make_tokenizer(), TextSettings(max_seq_len=2))


def test_a_tokenizer_without_a_padding_token_is_refused():
    tokenizer = Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))

    with pytest.raises(FolderError, match=r"no \[PAD\] token"):
        TextEncoder(tokenizer, PLAIN)


@pytest.mark.parametrize(
    ("config", "expected"), [("{}", "good"), ('{"do_lower_case": false}', "Good")]
)
def test_a_vocabulary_keeps_the_case_that_its_folder_asks_for(tmp_path, config, expected):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "Good"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "tokenizer_config.json").write_text(config)

    encoder = load_text_encoder(tmp_path, TextSettings(max_seq_len=8))

    assert encoder.encode_texts(["Good"])[0].input_ids[1] == words.index(expected)


def test_special_ids_are_those_of_bert_and_those_that_the_file_declares():
    tokenizer = make_tokenizer()
    named = [IDS[token] for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if token in IDS]
    tokenizer.add_special_tokens(["[NAME]"])
    tokenizer.add_tokens(["ordinary"])

    encoder = TextEncoder(tokenizer, PLAIN)

    assert encoder.special_token_ids == tuple(sorted([*named, tokenizer.token_to_id("[NAME]")]))


def test_mask_token_is_known_or_missing():
    tokenizer = make_tokenizer()
    encoder = TextEncoder(tokenizer, PLAIN)

    before = encoder.mask_token_id
    tokenizer.add_special_tokens(["[MASK]"])

    assert before is None
    assert encoder.mask_token_id == tokenizer.token_to_id("[MASK]")


def test_a_pair_has_both_texts_in_one_row_and_the_id_that_parts_them(encoder):
    (encoded,) = encoder.encode_pairs([("a good film", "films")])

    assert words_of(encoded) == ["[CLS]", "a", "good", "film", "[SEP]", "film", "##s", "[SEP]"]
    assert encoder.sep_token_id == IDS["[SEP]"]


def test_a_tokenizer_without_sep_is_refused_when_asked_for_it():
    encoder = TextEncoder(Tokenizer(WordLevel({"[PAD]": 0}, unk_token="[PAD]")), PLAIN)

    with pytest.raises(FolderError, match=r"no \[SEP\] token"):
        _ = encoder.sep_token_id
