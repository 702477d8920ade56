// Package s3 puts files into the bucket that a caller lends to a job: the
// s3Config of its submission. It is apart from package worker so that workers
// without uploads do not link an S3 client.
//
//	url, err := s3.Upload(ctx, j, "image.png", file, size, "image/png")
//
// From gives the bucket for more than that.
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"flightline/shared/netguard"
	"flightline/shared/worker"
)

// ErrNoConfig means that the job came without an s3Config.
var ErrNoConfig = errors.New("s3: the job has no s3Config")

// ErrConfig means that the job's s3Config cannot be used; the text says which
// field is wrong and holds no credentials.
var ErrConfig = errors.New("s3: the job's s3Config")

// ErrName means that a file's name cannot be a key below the job's.
var ErrName = errors.New("s3: not a file name")

const (
	// linkFor is how long the address of an upload works: as long as S3
	// allows a signature to.
	linkFor = 7 * 24 * time.Hour
	// tries bounds the requests for one operation; the pauses grow to 1 s.
	tries = 5
	// connectTimeout bounds one connection to the server.
	connectTimeout = 30 * time.Second
)

// Bucket is the bucket lent to one job.
type Bucket struct {
	// Client speaks to its server, with bucket names in the path.
	Client *minio.Client
	// Name of the bucket.
	Name string

	job string
}

// From returns the job's bucket. It asks nothing of the server yet. It returns
// ErrNoConfig or ErrConfig. The client connects to public addresses and to the
// worker's S3AllowNetworks only, and by no proxy.
func From(j *worker.Job) (*Bucket, error) {
	c, ok := j.S3Config()
	if !ok {
		return nil, ErrNoConfig
	}
	return open(c, j.ID, j.S3AllowNetworks())
}

// Client returns a client for the server of the job's bucket, and the bucket's
// name. It returns what From does.
func Client(j *worker.Job) (*minio.Client, string, error) {
	b, err := From(j)
	if err != nil {
		return nil, "", err
	}
	return b.Client, b.Name, nil
}

// Upload puts a file into the job's bucket as Bucket.Upload does.
func Upload(ctx context.Context, j *worker.Job, name string, r io.Reader, size int64, contentType string) (link string, err error) {
	b, err := From(j)
	if err != nil {
		return "", err
	}
	return b.Upload(ctx, name, r, size, contentType)
}

// Upload stores what r holds under the key "<job id>/<name>" and returns an
// address that serves it to everybody who has the address, for seven days.
// name may have folders, as "frames/1.png", but not leave the job's own.
// size -1 means that it is not known: then up to 500 MB of memory are used. An
// empty contentType means application/octet-stream. A second upload of the
// same name replaces the first, so a job that runs again does no harm.
func (b *Bucket) Upload(ctx context.Context, name string, r io.Reader, size int64, contentType string) (link string, err error) {
	key, err := b.Key(name)
	if err != nil {
		return "", err
	}
	_, err = b.Client.PutObject(ctx, b.Name, key, r, size, minio.PutObjectOptions{ContentType: contentType})
	if errors.Is(err, netguard.ErrAddress) { // which one is the worker's network's business
		return "", fmt.Errorf("%w: endpointUrl is at an address that this worker must not reach", ErrConfig)
	}
	if err != nil {
		return "", fmt.Errorf("upload %s to bucket %s: %w", key, b.Name, err)
	}
	u, err := b.Client.PresignedGetObject(ctx, b.Name, key, linkFor, nil)
	if err != nil {
		return "", fmt.Errorf("sign the address of %s in bucket %s: %w", key, b.Name, err)
	}
	return u.String(), nil
}

// Key is where Upload stores a file of that name. It returns ErrName.
func (b *Bucket) Key(name string) (string, error) {
	if name == "" || name != path.Clean(name) || path.IsAbs(name) || name == "." || name == ".." || strings.HasPrefix(name, "../") {
		return "", fmt.Errorf("%w: %q", ErrName, name)
	}
	return b.job + "/" + name, nil
}

func open(c worker.S3Config, job string, allowed []netip.Prefix) (*Bucket, error) {
	host, secure, err := address(c.EndpointURL)
	switch {
	case err != nil:
		return nil, err
	case c.BucketName == "":
		return nil, fmt.Errorf("%w: bucketName is missing", ErrConfig)
	case c.AccessID == "" || c.AccessSecret == "":
		return nil, fmt.Errorf("%w: accessId or accessSecret is missing", ErrConfig)
	}
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	client, err := minio.New(host, &minio.Options{
		Transport:    netguard.Guard(transport, netguard.Dialer(allowed, connectTimeout)),
		Creds:        credentials.NewStaticV4(c.AccessID, c.AccessSecret, ""),
		Secure:       secure,
		BucketLookup: minio.BucketLookupPath,
		MaxRetries:   tries,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: endpointUrl: %w", ErrConfig, err)
	}
	return &Bucket{Client: client, Name: c.BucketName, job: job}, nil
}

// address takes an endpointUrl apart. The errors do not quote it: it may hold
// a password.
func address(endpointURL string) (host string, secure bool, err error) {
	u, err := url.Parse(endpointURL)
	switch {
	case endpointURL == "":
		return "", false, fmt.Errorf("%w: endpointUrl is missing", ErrConfig)
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "", false, fmt.Errorf("%w: endpointUrl is not an http or https URL", ErrConfig)
	case u.User != nil, u.RawQuery != "", strings.Trim(u.Path, "/") != "":
		return "", false, fmt.Errorf("%w: endpointUrl has more than a scheme and a host; the bucket goes into bucketName", ErrConfig)
	}
	return u.Host, u.Scheme == "https", nil
}
