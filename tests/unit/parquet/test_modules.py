from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcrypt.errors import ConfigError, FormatError, VerificationError
from sparkcrypt.files.parquet.file import modules
from sparkcrypt.files.parquet.file.modules import FRAME_BYTES, MAX_ORDINAL, ModuleCipher, ModuleType, module_aad

KEY = bytes(range(16))
AAD = b"prefix\x00uniqueid\x02\x00\x00\x01\x00\x02\x00"


@pytest.mark.parametrize(
    ("module", "ordinals", "suffix"),
    [
        (ModuleType.FOOTER, (), "00"),
        (ModuleType.COLUMN_META_DATA, (1, 2), "01 0100 0200"),
        (ModuleType.DATA_PAGE, (1, 2, 3), "02 0100 0200 0300"),
        (ModuleType.DICTIONARY_PAGE, (1, 2), "03 0100 0200"),
        (ModuleType.DATA_PAGE_HEADER, (1, 2, 0x7FFF), "04 0100 0200 ff7f"),
        (ModuleType.DICTIONARY_PAGE_HEADER, (1, 258), "05 0100 0201"),
        (ModuleType.COLUMN_INDEX, (1, 2), "06 0100 0200"),
        (ModuleType.OFFSET_INDEX, (1, 2), "07 0100 0200"),
        (ModuleType.BLOOM_FILTER_HEADER, (1, 2), "08 0100 0200"),
        (ModuleType.BLOOM_FILTER_BITSET, (1, 2), "09 0100 0200"),
    ],
)
def test_aads_are_those_of_the_specification(module: ModuleType, ordinals: tuple[int, ...], suffix: str) -> None:
    """Every module's AAD is file AAD, type byte and little-endian ordinals, as section 4.4.2 lists them."""
    assert module_aad(b"file", module, *ordinals) == b"file" + bytes.fromhex(suffix)


@pytest.mark.parametrize("ordinal", [-1, MAX_ORDINAL + 1])
def test_ordinals_that_do_not_fit_are_refused(ordinal: int) -> None:
    """Beyond 32,767 an ordinal would wrap into another module's AAD."""
    with pytest.raises(FormatError, match="0 to 32767"):
        module_aad(b"", ModuleType.DATA_PAGE, 0, 0, ordinal)


@pytest.mark.parametrize(("module", "ordinals"), [(ModuleType.FOOTER, (1,)), (ModuleType.DATA_PAGE, (1, 2))])
def test_a_module_takes_its_own_number_of_ordinals(module: ModuleType, ordinals: tuple[int, ...]) -> None:
    """An AAD with ordinals too many or too few cannot be made by mistake."""
    with pytest.raises(ValueError, match="ordinals"):
        module_aad(b"", module, *ordinals)


@given(st.sampled_from([16, 24, 32]), st.binary(max_size=300), st.binary(max_size=60))
@settings(max_examples=50)
def test_modules_open_with_their_key_and_aad(key_bytes: int, plaintext: bytes, aad: bytes) -> None:
    """GCM and CTR modules decrypt to what was encrypted, for every key length, framed by their length."""
    cipher = ModuleCipher(bytes(key_bytes))
    sealed = cipher.encrypt(plaintext, aad)
    assert int.from_bytes(sealed[:4], "little") == len(sealed) - 4 == len(plaintext) + 28
    assert cipher.decrypt(sealed, aad, "it") == plaintext
    streamed = cipher.encrypt_ctr(plaintext)
    assert int.from_bytes(streamed[:4], "little") == len(streamed) - 4 == len(plaintext) + 12
    assert cipher.decrypt_ctr(streamed, "it") == plaintext


@pytest.mark.parametrize("old_library", [False, True])
@given(plaintext=st.binary(max_size=300), aad=st.binary(max_size=60), spare=st.integers(0, 9))
@settings(max_examples=50)
def test_modules_put_in_place(plaintext: bytes, aad: bytes, spare: int, old_library: bool) -> None:
    """A module made where it shall stand is one as any other, fresh nonce included, and nothing lies after it."""
    cipher = ModuleCipher(KEY)
    if old_library:
        cipher._encrypt_into = None
    made = []
    for _ in range(2):
        place = bytearray(len(plaintext) + FRAME_BYTES + spare)
        size = cipher.encrypt_into(plaintext, aad, memoryview(place))
        assert size == len(plaintext) + FRAME_BYTES and place[size:] == bytes(spare)
        assert cipher.decrypt(bytes(place[:size]), aad, "it") == plaintext
        made.append(bytes(place[4:16]))
    assert made[0] != made[1]


def test_places_that_are_too_small() -> None:
    """A module that does not fit is an error, not a part of a module."""
    with pytest.raises(ValueError):
        ModuleCipher(KEY).encrypt_into(bytes(100), AAD, memoryview(bytearray(100)))


def test_gcm_and_ctr_match_published_vectors() -> None:
    """The ciphers are those of NIST: AES-GCM test case 3 of the GCM specification, and its keystream for CTR."""
    key = bytes.fromhex("feffe9928665731c6d6a8f9467308308")
    nonce = bytes.fromhex("cafebabefacedbaddecaf888")
    plaintext = bytes.fromhex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72")
    ciphertext = bytes.fromhex("42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e")
    # GCM encrypts its first block with counter 2; CTR in Parquet begins with counter 1: one block more in front.
    framed = (12 + 48).to_bytes(4, "little") + nonce + bytes(16) + ciphertext
    assert ModuleCipher(key).decrypt_ctr(framed, "it")[16:] == plaintext


def test_every_flipped_bit_is_found() -> None:
    """No bit of nonce, ciphertext or tag can change unnoticed, nor can the length."""
    cipher = ModuleCipher(KEY)
    sealed = cipher.encrypt(b"page bytes", AAD)
    for index in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[index // 8] ^= 1 << index % 8
        with pytest.raises(FormatError if index < 32 else VerificationError):
            cipher.decrypt(bytes(changed), AAD, "page 3")


def test_every_truncation_is_refused() -> None:
    """A module cut anywhere, or with bytes after it, is refused by its length."""
    cipher = ModuleCipher(KEY)
    sealed = cipher.encrypt(b"page bytes", AAD)
    for wrong in [
        *(sealed[:end] for end in range(len(sealed))),
        sealed + b"\x00",
        (27).to_bytes(4, "little") + bytes(27),
    ]:
        with pytest.raises(FormatError, match="page 3"):
            cipher.decrypt(wrong, AAD, "page 3")
    with pytest.raises(FormatError, match="page 3"):
        cipher.decrypt_ctr((11).to_bytes(4, "little") + bytes(11), "page 3")


@pytest.mark.parametrize(
    ("key", "aad"), [(KEY[::-1], AAD), (KEY + KEY[:8], AAD), (KEY, AAD[:-1]), (KEY, b""), (KEY, b"x" + AAD)]
)
def test_another_key_or_aad_does_not_open(key: bytes, aad: bytes) -> None:
    """A module opens under its own key and AAD only, and the message names the module and no key, tag or AAD bytes."""
    sealed = ModuleCipher(KEY).encrypt(b"page bytes", AAD)
    with pytest.raises(VerificationError) as raised:
        ModuleCipher(key).decrypt(sealed, aad, "page 3")
    text = str(raised.value)
    assert text.startswith("page 3 does not authenticate")
    assert not any(secret.hex() in text for secret in (key, sealed[-16:], sealed[4:16]))


def test_a_signature_holds_for_its_footer_key_and_aad_only() -> None:
    """Signatures of plaintext footers verify, and fail for other bytes, keys, AADs, nonces and tags."""
    cipher = ModuleCipher(KEY)
    signature = cipher.sign(b"footer", AAD)
    assert len(signature) == 28
    cipher.verify_signature(b"footer", signature, AAD)
    flipped = [signature[:index] + bytes((signature[index] ^ 1,)) + signature[index + 1 :] for index in range(28)]
    wrong = [
        (cipher, b"footes", signature, AAD),
        (cipher, b"footer", signature, AAD[:-1]),
        (ModuleCipher(KEY[::-1]), b"footer", signature, AAD),
        *((cipher, b"footer", other, AAD) for other in flipped),
    ]
    for other, footer, signed, aad in wrong:
        with pytest.raises(VerificationError, match="signature"):
            other.verify_signature(footer, signed, aad)


def test_nonces_are_fresh() -> None:
    """No two encryptions share a nonce, whichever the mode."""
    cipher = ModuleCipher(KEY)
    framed = [module for _ in range(200) for module in (cipher.encrypt(b"", b""), cipher.encrypt_ctr(b""))]
    assert len({module[4:16] for module in framed}) == 400


def test_a_key_is_not_used_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encryptions by GCM, CTR and signing are counted together and refused at the limit."""
    monkeypatch.setattr(modules, "MAX_INVOCATIONS", 3)
    cipher = ModuleCipher(KEY)
    cipher.encrypt(b"", b"")
    cipher.encrypt_ctr(b"")
    cipher.sign(b"", b"")
    into = (b"", b"", memoryview(bytearray(FRAME_BYTES)))
    for use, arguments in (
        *((cipher.encrypt, (b"", b"")), (cipher.encrypt_into, into)),
        *((cipher.encrypt_ctr, (b"",)), (cipher.sign, (b"", b""))),
    ):
        with pytest.raises(FormatError, match="limit"):
            use(*arguments)


@pytest.mark.parametrize("length", [0, 15, 17, 31, 33, 64])
def test_keys_of_other_lengths_are_refused(length: int) -> None:
    """Only AES key lengths are taken, and the message has the length, not the key."""
    key = b"\xc0" * length
    with pytest.raises(ConfigError, match="16, 24 or 32") as raised:
        ModuleCipher(key)
    assert f"{length} bytes" in str(raised.value) and "c0c0" not in str(raised.value)


def test_a_cipher_does_not_show_its_key() -> None:
    """Neither repr nor str of a cipher holds key bytes."""
    canary = b"canary-of-a-key!"
    cipher = ModuleCipher(canary)
    assert not any(secret in repr(cipher) + str(cipher) for secret in ("canary", canary.hex()))
