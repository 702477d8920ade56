package job

import (
	"strings"
	"time"
)

// Bounds that the API promises (docs/design/product.md#limits), in bytes.
const (
	// MaxRunBody is the largest body of /run.
	MaxRunBody = 10 << 20
	// MaxRunSyncBody is the largest body of /runsync.
	MaxRunSyncBody = 20 << 20
	// MaxOutput is the largest result; a larger one is FAILED with ErrTextOutputTooLarge.
	MaxOutput = 20 << 20
	// MaxChunk is the largest streamed chunk.
	MaxChunk = 1 << 20
	// MaxProgress is the largest progress value.
	MaxProgress = 64 << 10
	// MaxError is the longest error text kept; a longer one is cut and marked.
	MaxError = 64 << 10
	// MaxS3Config is the largest s3Config.
	MaxS3Config = 16 << 10
	// MaxWebhook is the longest webhook address.
	MaxWebhook = 4 << 10

	MinExecutionTimeout = 5 * time.Second
	MaxExecutionTimeout = 7 * 24 * time.Hour

	MinTTL = 10 * time.Second
	MaxTTL = 7 * 24 * time.Hour
	// MinChangedTTL is the least that /status?ttl= accepts (docs/design/product.md#ttl).
	MinChangedTTL = time.Second

	DefaultWait = 90 * time.Second
	MinWait     = time.Second
	MaxWait     = 300 * time.Second
)

// Texts of Error that clients may compare.
const (
	ErrTextTimedOut       = "executionTimeout exceeded"
	ErrTextOutputTooLarge = "output_too_large"
	ErrTextChunkTooLarge  = "chunk_too_large"
	ErrTextChunkNotStored = "chunk_not_stored"
	ErrTextPanic          = "handler panicked"
)

// CutError returns text as it may be kept in a record: at most MaxError bytes,
// cut at a character boundary and marked when it was longer.
func CutError(text string) string {
	const mark = "… (cut)"
	if len(text) <= MaxError {
		return text
	}
	return Cut(text, MaxError-len(mark)) + mark
}

// Cut returns at most the first n bytes of text, cut at a character boundary and without
// what is no UTF-8. n is 0 or more.
func Cut(text string, n int) string { return strings.ToValidUTF8(text[:min(n, len(text))], "") }
