// Package s3 tests uploads of jobs against a real S3 server that runs inside
// the test: versitygw on a folder. It is a module of its own, so that the
// server's many dependencies are not Flightline's.
package s3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"

	"flightline/shared/job"
	"flightline/shared/worker"
	"flightline/shared/worker/s3"
)

const (
	accessID     = "job-access"
	accessSecret = "job-secret"
	bucket       = "results"
	soon         = 2 * time.Minute
)

// loopback is where the test's S3 server is.
var loopback = netip.MustParsePrefix("127.0.0.0/8")

func TestJobsUploadToTheBucketOfTheirSubmission(t *testing.T) {
	address := startServer(t)
	q := startQueue(t, func(ctx context.Context, j *worker.Job) (any, error) {
		var in struct {
			Size int `json:"size"`
		}
		if err := json.Unmarshal(j.Input, &in); err != nil {
			return nil, err
		}
		file := strings.NewReader(content(in.Size))
		return s3.Upload(ctx, j, "frames/an image.png", file, file.Size(), "image/png")
	}, loopback)
	for name, size := range map[string]int{"small": 1 << 10, "empty": 0, "in parts": 20 << 20} {
		t.Run(name, func(t *testing.T) {
			j := q.run(t, size, config(address, accessSecret, bucket))
			var link string
			if err := json.Unmarshal(j.Output, &link); err != nil {
				t.Fatalf("got %s %s %q: %v", j.Status, j.Output, j.Error, err)
			}
			body, kind := download(t, link)
			if body != content(size) || kind != "image/png" {
				t.Errorf("got %d bytes of %s, want %d of image/png", len(body), kind, size)
			}
			if strings.Contains(link, accessSecret) || !strings.Contains(link, string(j.ID)+"/frames/an%20image.png") {
				t.Errorf("got %s, want the job's key and no secret", link)
			}
		})
	}
	for name, s3Config := range map[string]string{
		"a wrong secret":  config(address, "wrong", bucket),
		"no such bucket":  config(address, accessSecret, "absent"),
		"nobody there":    config("http://127.0.0.1:1", accessSecret, bucket),
		"no s3Config":     "",
		"no endpoint url": `{"bucketName":"results"}`,
	} {
		t.Run(name, func(t *testing.T) {
			j := q.run(t, 1, s3Config)
			if j.Status != job.Failed || j.Error == "" || strings.Contains(j.Error, accessSecret) {
				t.Errorf("got %s %s %q, want FAILED without a secret", j.Status, j.Output, j.Error)
			}
		})
	}
}

func TestASizeThatIsNotKnown(t *testing.T) {
	address := startServer(t)
	q := startQueue(t, func(ctx context.Context, j *worker.Job) (any, error) {
		b, err := s3.From(j)
		if err != nil {
			return nil, err
		}
		link, err := b.Upload(ctx, "a.txt", io.MultiReader(strings.NewReader("some "), strings.NewReader("text")), -1, "")
		if err != nil {
			return nil, err
		}
		key, err := b.Key("a.txt")
		if err != nil {
			return nil, err
		}
		info, err := b.Client.StatObject(ctx, b.Name, key, minio.StatObjectOptions{})
		return []any{link, info.Size}, err
	}, loopback)
	j := q.run(t, 0, config(address, accessSecret, bucket))
	var out []any
	if err := json.Unmarshal(j.Output, &out); err != nil || len(out) != 2 || out[1] != float64(9) {
		t.Fatalf("got %s %s %q", j.Status, j.Output, j.Error)
	}
	if body, _ := download(t, out[0].(string)); body != "some text" {
		t.Errorf("got %q", body)
	}
}

// Without the operator's permission a worker connects to no S3 server inside its
// own network, though the caller's credentials are good there.
func TestAServerInsideTheWorkersNetworkIsRefused(t *testing.T) {
	address := startServer(t)
	q := startQueue(t, func(ctx context.Context, j *worker.Job) (any, error) {
		return s3.Upload(ctx, j, "a", strings.NewReader("text"), 4, "")
	})
	j := q.run(t, 0, config(address, accessSecret, bucket))
	if j.Status != job.Failed || !strings.Contains(j.Error, "must not reach") {
		t.Errorf("got %s %s %q, want FAILED for the address", j.Status, j.Output, j.Error)
	}
}

func content(size int) string { return strings.Repeat("0123456789abcdef", size/16) }

func config(address, secret, bucketName string) string {
	return fmt.Sprintf(`{"accessId":%q,"accessSecret":%q,"bucketName":%q,"endpointUrl":%q}`, accessID, secret, bucketName, address)
}

func download(t *testing.T, link string) (body, contentType string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("download: got %s, %v: %.200s", answer.Status, err, data)
	}
	return string(data), answer.Header.Get("Content-Type")
}

// startServer runs the S3 server with one bucket. There can be one at a time.
func startServer(t *testing.T) (address string) {
	t.Helper()
	t.Chdir(".") // posix.New leaves the process in its folder
	root := t.TempDir()
	files, err := posix.New(root, meta.XattrMeta{}, posix.PosixOpts{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().String()
	if err := listener.Close(); err != nil { // the server opens it itself
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- embedgw.RunVersityGW(ctx, files, &embedgw.Config{
			RootUserAccess: accessID, RootUserSecret: accessSecret, Ports: []string{port},
			MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000, Quiet: true,
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("S3 server: %v", err)
		}
	})
	makeBucket(t, port, done)
	return "http://" + port
}

func makeBucket(t *testing.T, host string, ended <-chan error) {
	t.Helper()
	client, err := minio.New(host, &minio.Options{Creds: credentials.NewStaticV4(accessID, accessSecret, ""), MaxRetries: 1})
	if err != nil {
		t.Fatal(err)
	}
	late := time.After(soon)
	for {
		err := client.MakeBucket(t.Context(), bucket, minio.MakeBucketOptions{})
		if err == nil {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case err := <-ended:
			t.Fatalf("S3 server ended: %v", err)
		case <-late:
			t.Fatalf("make bucket: %v", err)
		}
	}
}
