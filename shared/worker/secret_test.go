package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"flightline/shared/job"
	"flightline/shared/worker"
)

func TestS3ConfigIsNeverPrinted(t *testing.T) {
	t.Parallel()
	const id, hush = "AKIA4711", "hush"
	s := newEnv(t)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	printed := make(chan string, 1)
	w := s.run(t, worker.Config{Log: logger}, func(ctx context.Context, j *worker.Job) (any, error) {
		c, _ := j.S3Config()
		logger.InfoContext(ctx, "printed", "job", j, "copy", *j, "config", c)
		printed <- fmt.Sprintf("%v %+v %#v %s %v %+v %#v %v %s", c, c, c, c, j, j, j, *j, &c)
		return nil, nil
	})
	s.ended(t, s.submit(t, func(r *job.Request) {
		r.S3Config = []byte(`{"accessId":"` + id + `","accessSecret":"` + hush + `","bucketName":"b","endpointUrl":"http://u:` + hush + `@s3/?x=` + hush + `"}`)
	}))
	w.stop()
	if err := w.wait(); err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"print": got(t, printed, "the print"), "log": log.String()} {
		if strings.Contains(text, id) || strings.Contains(text, hush) {
			t.Errorf("%s: got a secret in %s", where, text)
		}
		if !strings.Contains(text, "s3") {
			t.Errorf("%s: got %s, want the address", where, text)
		}
	}
}
