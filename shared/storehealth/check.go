// Package storehealth finds streams whose store NATS has switched off, and stores that
// are nearly full. The server keeps the first failed write of a stream, for example on a
// full disk, and refuses all writes to the stream until it is restarted. It answers none
// of them, so a client sees nothing but silence.
package storehealth

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
)

// Failure is a stream that refuses writes since one failed.
type Failure struct {
	Stream string
	// Reason is what the server says of the write that failed, which may name
	// a path of its machine.
	Reason string
}

// codeGeneral is the server's code for an error of a stream's store.
const codeGeneral = 10051

// Check asks the server for the failed write that it keeps of a stream. It
// returns nil if none exists, or no such stream, and an error if the server
// does not answer. The question is a purge that matches no message: it removes
// nothing, and one server that is alone writes nothing for it.
func Check(ctx context.Context, nc *nats.Conn, stream string) (*Failure, error) {
	question, err := json.Marshal(map[string]string{"filter": bus.CheckFilter})
	if err != nil {
		return nil, fmt.Errorf("check the store of %s: %w", stream, err)
	}
	answer, err := nc.RequestWithContext(ctx, bus.StreamPurge(stream), question)
	if err != nil {
		return nil, fmt.Errorf("check the store of %s: %w", stream, err)
	}
	reason, err := failedWrite(answer.Data)
	if err != nil {
		return nil, fmt.Errorf("check the store of %s: %w", stream, err)
	}
	if reason == "" {
		return nil, nil //nolint:nilnil // no failure is no error
	}
	return &Failure{Stream: stream, Reason: reason}, nil
}

// failedWrite is the failed write that the answer to a purge names, "" for none.
func failedWrite(answer []byte) (string, error) {
	var got struct {
		Error *struct {
			ErrorCode   int    `json:"err_code"` //nolint:tagliatelle // the server's name
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	if got.Error == nil || got.Error.ErrorCode != codeGeneral || strings.HasSuffix(got.Error.Description, "closed") {
		return "", nil // a stream that is being deleted is closed
	}
	return got.Error.Description, nil
}

// causes are the endings of errors that may be shown to everybody.
var causes = []string{
	"no space left on device", "disk quota exceeded", "file too large", "read-only file system",
	"too many open files", "too many open files in system", "input/output error", "permission denied",
}

// Cause is the reason without paths and names: a cause that the operating
// system names, or "write error".
func (f Failure) Cause() string {
	for _, cause := range causes {
		if strings.HasSuffix(f.Reason, cause) {
			return cause
		}
	}
	return "write error"
}

// Summary says how many streams refuse writes and why, in words that may be
// shown to everybody. It is "" for none.
func Summary(failed []Failure) string {
	if len(failed) == 0 {
		return ""
	}
	who := "1 stream refuses"
	if len(failed) > 1 {
		who = fmt.Sprintf("%d streams refuse", len(failed))
	}
	return fmt.Sprintf("%s writes (%s)", who, failed[0].Cause())
}
