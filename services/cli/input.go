package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"flightline/shared/client"
	"flightline/shared/job"
)

// policyFlags are the parts of a submission that have flags.
type policyFlags struct {
	ttl, executionTimeout time.Duration
	lowPriority           bool
	webhook               string
	idempotencyKey        string
}

func (p *policyFlags) add(f *pflag.FlagSet) {
	f.DurationVar(&p.ttl, "ttl", 0, "end the job this long after submission, whatever it does (10s to 168h)")
	f.DurationVar(&p.executionTimeout, "execution-timeout", 0, "time out a run that takes longer (5s to 168h)")
	f.BoolVar(&p.lowPriority, "low-priority", false, "run it when nothing else waits")
	f.StringVar(&p.idempotencyKey, "idempotency-key", "", "`key` that makes the submission repeatable: it stands for one job for 24 hours")
	f.StringVar(&p.webhook, "webhook", "", "`URL` to tell when the job ends")
}

// readInput returns what an argument stands for: itself, the file after an @,
// or for - what comes from in. It is at most one byte larger than the API
// takes, which then says so.
func readInput(arg string, in io.Reader) ([]byte, error) {
	path, isFile := strings.CutPrefix(arg, "@")
	switch {
	case arg == "-":
		data, err := io.ReadAll(io.LimitReader(in, job.MaxSyncBody+1))
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return data, nil
	case isFile:
		data, err := readFile(path)
		if err != nil {
			return nil, &UsageError{err}
		}
		return data, nil
	}
	return []byte(arg), nil
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(file, job.MaxSyncBody+1))
}

// requestOf makes a submission of what was typed: an object that has the key
// "input" is a whole request as the API takes it, any other object is the
// input. Flags come before what the request says.
func requestOf(data []byte, p policyFlags) (client.Request, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil || keys == nil {
		return client.Request{}, &UsageError{errors.New(`the input must be a JSON object, as '{"text":"hello"}'`)}
	}
	r := client.Request{Input: json.RawMessage(data)}
	if _, whole := keys["input"]; whole {
		parsed, err := job.NewRequest(data)
		if err != nil {
			return client.Request{}, &UsageError{err}
		}
		r.Input, r.Webhook, r.Policy = parsed.Input, parsed.Webhook, client.Policy(parsed.Policy)
		if parsed.S3Config != nil {
			r.S3 = new(client.S3Config)
			if err := json.Unmarshal(parsed.S3Config, r.S3); err != nil {
				return client.Request{}, &UsageError{fmt.Errorf("s3Config: %w", err)}
			}
		}
	}
	if p.webhook != "" {
		r.Webhook = p.webhook
	}
	if p.ttl != 0 {
		r.Policy.TTL = p.ttl
	}
	if p.executionTimeout != 0 {
		r.Policy.ExecutionTimeout = p.executionTimeout
	}
	r.IdempotencyKey = p.idempotencyKey
	r.Policy.LowPriority = r.Policy.LowPriority || p.lowPriority
	return r, nil
}
