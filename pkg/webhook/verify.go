package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Why a delivery's signature was refused. None says anything about the secret.
var (
	// ErrNoSecret says that there is nothing to check against, so nothing passes.
	ErrNoSecret = errors.New("no webhook secret is configured")
	// ErrSignatureMissing says that the delivery is not signed. Set the secret in the
	// hook's settings.
	ErrSignatureMissing = errors.New("the X-Hub-Signature-256 header is missing")
	// ErrSignatureSHA1 says that only the old X-Hub-Signature came, which is not enough.
	ErrSignatureSHA1 = errors.New("only a SHA-1 signature was sent; X-Hub-Signature-256 is needed")
	// ErrSignatureMalformed says that the header is not one sha256= and 64 hex digits.
	ErrSignatureMalformed = errors.New("the X-Hub-Signature-256 header is not sha256= and 64 hex digits")
	// ErrSignatureWrong says that body and secret do not give this signature. The
	// secrets differ, or something on the way rewrote the body.
	ErrSignatureWrong = errors.New("the signature does not match the body and the secret")
)

const (
	signatureHeader = "X-Hub-Signature-256"
	sha1Header      = "X-Hub-Signature"
	signaturePrefix = "sha256="
)

// Verify checks the signature over the raw body, exactly as it came, in
// constant time. The error is one of the ErrSignature errors or ErrNoSecret.
func Verify(secret []byte, header http.Header, body []byte) error {
	if len(secret) == 0 {
		return ErrNoSecret
	}
	got, err := signature(header)
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	if !hmac.Equal(got, mac.Sum(nil)) {
		return ErrSignatureWrong
	}
	return nil
}

// CheckSignatureHeader says whether the header can be a signature at all, so
// that a body need not be read for one that cannot. It returns what Verify
// would.
func CheckSignatureHeader(header http.Header) error {
	_, err := signature(header)
	return err
}

func signature(header http.Header) ([]byte, error) {
	values := header.Values(signatureHeader)
	switch {
	case len(values) == 0 && header.Get(sha1Header) != "":
		return nil, ErrSignatureSHA1
	case len(values) == 0:
		return nil, ErrSignatureMissing
	case len(values) > 1:
		return nil, fmt.Errorf("%w: it came %d times", ErrSignatureMalformed, len(values))
	}
	digits, ok := strings.CutPrefix(values[0], signaturePrefix)
	if !ok || len(digits) != hex.EncodedLen(sha256.Size) {
		return nil, ErrSignatureMalformed
	}
	sum, err := hex.DecodeString(digits)
	if err != nil {
		return nil, ErrSignatureMalformed
	}
	return sum, nil
}
