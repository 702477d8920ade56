package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrInvalid is what every FieldError unwraps to; the API answers 400.
var ErrInvalid = errors.New("job: invalid request")

// FieldError names the field of a request that is wrong, and what it may be.
type FieldError struct {
	// Field is the path in the body, as "policy.ttl"; "" is the body itself.
	Field string
	// Problem completes the sentence "<Field> …".
	Problem string
}

func (e *FieldError) Error() string {
	if e.Field == "" {
		return "the body " + e.Problem
	}
	return e.Field + " " + e.Problem
}

// Unwrap makes errors.Is(err, ErrInvalid) hold.
func (e *FieldError) Unwrap() error { return ErrInvalid }

// Policy is what the caller asked for; the zero value of a field means that
// it was not given, and the endpoint's setting holds
// (docs/design/product.md#precedence).
type Policy struct {
	ExecutionTimeout time.Duration
	TTL              time.Duration
	LowPriority      bool
}

// Request is a valid submission: the body of /run and /runsync.
type Request struct {
	// Input is a JSON object, verbatim.
	Input   json.RawMessage
	Webhook string
	Policy  Policy
	// S3Config is a JSON object, verbatim, or nil. It is a secret: only the
	// worker that runs the job receives it.
	S3Config json.RawMessage
	// Trace is the W3C trace context of the caller (Job.Trace). It is no part of
	// the body.
	Trace string
	// Caller is whose job it is. It is no part of the body either.
	Caller Caller
}

// Caller is the API key that submits, with what its jobs that wait or run may be
// at most, at all endpoints together.
type Caller struct {
	// Key is the id of the key; "" means that nothing is counted.
	Key string
	// MaxBytes bounds the inputs in bytes, MaxJobs the jobs; 0 means no bound.
	MaxBytes, MaxJobs int64
}

// NewRequest reads a submission body. Unknown keys pass. Any error is a
// *FieldError. The request keeps no reference to body.
func NewRequest(body []byte) (Request, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return Request{}, &FieldError{"", "is empty; it must be a JSON object with an input"}
	}
	if bytes.HasPrefix(body, []byte("\uFEFF")) { // as some editors write it
		return Request{}, &FieldError{"", "must not begin with a byte order mark"}
	}
	if !isObject(body) {
		return Request{}, &FieldError{"", "must be a JSON object with an input"}
	}
	if !json.Valid(body) {
		return Request{}, &FieldError{"", "is not valid JSON: " + syntax(json.Unmarshal(body, &struct{}{}))}
	}
	if at := invalidUTF8(body); at > 0 { // workers could not read the job
		return Request{}, &FieldError{"", fmt.Sprintf("is not valid UTF-8 (at byte %d)", at)}
	}
	fields := fieldsOf(body, "input", "webhook", "policy", "s3Config")
	r := Request{Input: fields["input"]}
	var err error
	if !isObject(r.Input) {
		return Request{}, &FieldError{"input", "is required and must be a JSON object"}
	}
	if r.Webhook, err = webhook(fields["webhook"]); err != nil {
		return Request{}, err
	}
	if r.Policy, err = policy(fields["policy"]); err != nil {
		return Request{}, err
	}
	if r.S3Config, err = s3Config(fields["s3Config"]); err != nil {
		return Request{}, err
	}
	return r, nil
}

// invalidUTF8 is the number of the first byte that is no UTF-8, from 1; 0 for none.
func invalidUTF8(text []byte) int {
	if utf8.Valid(text) {
		return 0
	}
	for i := 0; ; {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n <= 1 {
			return i + 1
		}
		i += n
	}
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && !bytes.Equal(raw, []byte("null")) }

func isObject(raw []byte) bool {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	return len(raw) > 0 && raw[0] == '{'
}

// syntax keeps what helps and drops Go's type names.
func syntax(err error) string {
	if se, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("%s (at byte %d)", strings.TrimPrefix(se.Error(), "json: "), se.Offset)
	}
	return "malformed"
}

func webhook(raw json.RawMessage) (string, error) {
	if !given(raw) {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", &FieldError{"webhook", "must be a string"}
	}
	if s == "" {
		return "", nil
	}
	if len(s) > MaxWebhook {
		return "", &FieldError{"webhook", fmt.Sprintf("must have at most %d bytes, got %d", MaxWebhook, len(s))}
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		return "", &FieldError{"webhook", "must be an http or https URL"}
	case strings.Contains(u.Host, "%"):
		return "", &FieldError{"webhook", "must not have an address with a zone, which means something on one machine only"}
	}
	if port, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || port < 1 || port > math.MaxUint16) {
		return "", &FieldError{"webhook", fmt.Sprintf("must have a port between 1 and %d, got %.20s", math.MaxUint16, u.Port())}
	}
	return s, nil
}

func policy(raw json.RawMessage) (Policy, error) {
	if !given(raw) {
		return Policy{}, nil
	}
	if !isObject(raw) {
		return Policy{}, &FieldError{"policy", "must be a JSON object"}
	}
	fields := fieldsOf(raw, "executionTimeout", "ttl", "lowPriority")
	var out Policy
	var err error
	if out.ExecutionTimeout, err = millis("policy.executionTimeout", fields["executionTimeout"], MinExecutionTimeout, MaxExecutionTimeout); err != nil {
		return Policy{}, err
	}
	if out.TTL, err = millis("policy.ttl", fields["ttl"], MinTTL, MaxTTL); err != nil {
		return Policy{}, err
	}
	if low := fields["lowPriority"]; given(low) {
		if err := json.Unmarshal(low, &out.LowPriority); err != nil {
			return Policy{}, &FieldError{"policy.lowPriority", fmt.Sprintf("must be true or false, got %.50s", low)}
		}
	}
	return out, nil
}

func millis(field string, raw json.RawMessage, least, most time.Duration) (time.Duration, error) {
	if !given(raw) {
		return 0, nil
	}
	var n float64
	if err := json.Unmarshal(raw, &n); err != nil || n != math.Trunc(n) {
		return 0, &FieldError{field, fmt.Sprintf("must be a whole number of milliseconds, got %.50s", raw)}
	}
	if n < float64(least.Milliseconds()) || n > float64(most.Milliseconds()) {
		return 0, &FieldError{field, fmt.Sprintf("must be between %d and %d milliseconds, got %.50s", least.Milliseconds(), most.Milliseconds(), raw)}
	}
	return time.Duration(n) * time.Millisecond, nil
}

func s3Config(raw json.RawMessage) (json.RawMessage, error) {
	if !given(raw) {
		return nil, nil
	}
	if len(raw) > MaxS3Config {
		return nil, &FieldError{"s3Config", fmt.Sprintf("must have at most %d bytes, got %d", MaxS3Config, len(raw))}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, &FieldError{"s3Config", "must be a JSON object"}
	}
	for _, name := range []string{"accessId", "accessSecret", "bucketName", "endpointUrl"} {
		var s string
		if v, ok := fields[name]; ok && given(v) && json.Unmarshal(v, &s) != nil {
			return nil, &FieldError{"s3Config." + name, "must be a string"}
		}
	}
	return raw, nil
}

// CompactJSON checks that v is JSON and returns it on one line, with U+FFFD for bytes that
// are no UTF-8; nil for nothing (docs/design/runpod-clients.md#answers).
func CompactJSON(v json.RawMessage) (json.RawMessage, error) {
	if len(v) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	b.Grow(len(v))
	if err := json.Compact(&b, v); err != nil {
		return nil, fmt.Errorf("job: output is not JSON: %w", err)
	}
	if utf8.Valid(b.Bytes()) {
		return b.Bytes(), nil
	}
	return bytes.ToValidUTF8(b.Bytes(), []byte("\uFFFD")), nil
}

// AppendJSON appends v as JSON to b, without a line break. It leaves <, > and & as they are:
// escaped, each would take six bytes of what is bounded, and an output would not stay as it
// was given. After an error it returns b alone.
func AppendJSON(b []byte, v any) ([]byte, error) {
	buf := bytes.NewBuffer(b)
	form := json.NewEncoder(buf)
	form.SetEscapeHTML(false)
	if err := form.Encode(v); err != nil {
		return b, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
