package worker

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
)

// S3Config is the bucket that the caller lends to the job. It is a secret:
// printed and logged it shows its address and bucket only.
type S3Config struct {
	AccessID     string `json:"accessId"`
	AccessSecret string `json:"accessSecret"`
	BucketName   string `json:"bucketName"`
	EndpointURL  string `json:"endpointUrl"`
}

// S3Config returns the job's s3Config; false if the caller gave none, or gave
// another form. Package worker/s3 makes a client of it.
func (j *Job) S3Config() (S3Config, bool) {
	var c S3Config
	if len(j.s3) == 0 || json.Unmarshal(j.s3, &c) != nil {
		return S3Config{}, false
	}
	return c, true
}

// RawS3Config is the s3Config as the caller wrote it, with keys that S3Config
// does not know, or nil. It is a secret.
func (j *Job) RawS3Config() json.RawMessage { return j.s3 }

// S3AllowNetworks are those of the worker's Config, for package worker/s3.
func (j *Job) S3AllowNetworks() []netip.Prefix { return j.s3Net }

// String leaves the credentials out.
func (c S3Config) String() string {
	return fmt.Sprintf("s3Config{endpointUrl: %q, bucketName: %q, credentials: redacted}", c.address(), c.BucketName)
}

// address is the EndpointURL without user and password.
func (c S3Config) address() string {
	u, err := url.Parse(c.EndpointURL)
	if err != nil {
		return "not a URL"
	}
	u.User, u.RawQuery = nil, ""
	return u.String()
}

// GoString leaves the credentials out.
func (c S3Config) GoString() string { return c.String() }

// LogValue leaves the credentials out.
func (c S3Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("endpoint_url", c.address()), slog.String("bucket_name", c.BucketName))
}
