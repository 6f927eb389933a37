"""Signatures of requests to AWS are those of AWS's own test vectors and examples."""

import pytest

from appliance.core import aws_signature
from appliance.core.aws_signature import Credentials

_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_SUITE = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1", "service")
# "Authenticating requests: using the Authorization header" of the S3 API reference
_EXAMPLES = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1", "s3")
_HOST = {"host": "examplebucket.s3.amazonaws.com", "x-amz-date": "20130524T000000Z"}


@pytest.mark.parametrize(
    ("method", "query", "signature"),
    [
        ("GET", [], "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", [], "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "GET", [("Param2", "value2"), ("Param1", "value1")],
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
    ],
)  # fmt: skip
def test_the_test_suite_of_aws(method: str, query: list[tuple[str, str]], signature: str) -> None:
    """Signatures are those of get-vanilla, post-vanilla and get-vanilla-query-order-key-case."""
    headers = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}
    encoded = aws_signature.encode_query(query)
    assert aws_signature.build_authorization(method, "/", encoded, headers, _EMPTY, _SUITE) == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders=host;x-amz-date, Signature={signature}"
    )


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "sha256", "signature"),
    [
        (
            "GET", "/test.txt", [], {"range": "bytes=0-9"}, _EMPTY,
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT", "/test$file.text", [],
            {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            "GET", "/", [("lifecycle", "")], {}, _EMPTY,
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            "GET", "/", [("prefix", "J"), ("max-keys", "2")], {}, _EMPTY,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)  # fmt: skip
def test_the_examples_of_s3(
    method: str, path: str, query: list[tuple[str, str]], headers: dict[str, str], sha256: str, signature: str
) -> None:
    """Signatures are those of the examples in the S3 API reference, with paths, queries and further headers."""
    signed = _HOST | headers | {"x-amz-content-sha256": sha256}
    authorization = aws_signature.build_authorization(
        method, aws_signature.encode_path(path), aws_signature.encode_query(query), signed, sha256, _EXAMPLES
    )
    assert authorization.endswith(f"Signature={signature}")
    assert ";".join(sorted(signed)) in authorization
