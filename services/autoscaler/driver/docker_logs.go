package driver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
)

// Follow implements Follower. The engine says when each piece was printed; of what it
// keeps itself, all that is newer than since comes.
func (d *Docker) Follow(ctx context.Context, podID string, since time.Time, each func(Printed)) error {
	o := client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Follow: true, Timestamps: true}
	if !since.IsZero() {
		o.Since = since.UTC().Format(time.RFC3339Nano)
	}
	printed, err := d.engine.ContainerLogs(ctx, d.container(podID), o)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return unknown(ctx, "read what pod "+podID+" prints", err)
	}
	defer printed.Close()
	out, errs := &stamped{since: since, each: each}, &stamped{since: since, each: each, stderr: true}
	_, err = stdcopy.StdCopy(out, errs, printed)
	if err == nil || errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return unknown(ctx, "read what pod "+podID+" prints", err)
}

// stamped takes the pieces of one output, each of which begins with its time: the engine
// sends a line, or 16 KB of one, in a frame, which StdCopy writes at once.
type stamped struct {
	since  time.Time
	stderr bool
	each   func(Printed)
}

// Write implements io.Writer. It never fails.
func (s *stamped) Write(p []byte) (int, error) {
	stamp, text, found := bytes.Cut(p, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if !found || err != nil {
		at, text = time.Now(), p
	}
	if at.After(s.since) {
		s.each(Printed{At: at, Stderr: s.stderr, Text: text})
	}
	return len(p), nil
}
