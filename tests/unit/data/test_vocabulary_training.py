import subprocess
import sys

import pytest

from pipeline.contract.tokenization import TextSettings
from pipeline.data.vocabulary import train_text_encoder

SETTINGS = TextSettings(max_seq_len=16)
TEXTS = [f"The {noun} sat on the {place} ." for noun in ("cat", "dog") for place in ("mat", "hat")]

IN_A_FRESH_PROCESS = """
import random
from pipeline.contract.tokenization import TextSettings
from pipeline.data.vocabulary import train_text_encoder
draw = random.Random(0)
letters = [chr(code) for code in range(0x4E00, 0x4E00 + 1500)] + list("abcdefghij") * 9
texts = [" ".join("".join(draw.choices(letters, k=4)) for _ in range(9)) for _ in range(300)]
settings = TextSettings(max_seq_len=16)
print(train_text_encoder(lambda: iter(texts), vocab_size=600, settings=settings).fingerprint)
"""


def test_trained_encoder_lowercases_and_frames_with_special_tokens():
    encoder = train_text_encoder(lambda: iter(TEXTS), vocab_size=200, settings=SETTINGS)

    upper, lower = encoder.encode_texts(["THE CAT", "the cat"])

    assert upper.input_ids.tolist() == lower.input_ids.tolist()
    assert upper.word_ids.tolist() == [-1, 0, 1, -1]
    assert encoder.pad_token_id == 0


def test_letters_of_the_corpus_are_words_and_not_special_tokens():
    encoder = train_text_encoder(lambda: iter(TEXTS), vocab_size=200, settings=SETTINGS)

    encoded = encoder.encode_texts(["c a ##t"])[0]

    assert encoder.num_special_tokens == 2
    assert encoded.word_ids.tolist() == [-1, 0, 1, 2, 3, 4, -1]


def test_vocabulary_is_no_larger_than_asked_for_even_with_many_characters():
    texts = ["".join(chr(code) for code in range(0x4E00, 0x4E00 + 1500))]

    assert (
        train_text_encoder(lambda: iter(texts), vocab_size=120, settings=SETTINGS).vocab_size <= 120
    )


@pytest.mark.slow
def test_training_gives_the_same_bytes_in_every_process():
    runs = [
        subprocess.run(
            [sys.executable, "-c", IN_A_FRESH_PROCESS], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]

    assert runs[0] == runs[1]
    assert len(runs[0].strip()) == 64
