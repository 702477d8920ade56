package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"flightline/shared/client"
	"flightline/shared/job"
)

// namedArgs takes the arguments that the command's Use names: NAME is required,
// [NAME] may be left out, and a command after "--" is not counted.
func namedArgs(cmd *cobra.Command, args []string) error {
	names := strings.Fields(cmd.Use)[1:]
	for i, name := range names {
		if name == "[--" {
			names = names[:i]
			break
		}
	}
	if dash := cmd.ArgsLenAtDash(); dash >= 0 && strings.Contains(cmd.Use, "[--") {
		args = args[:dash]
	}
	if len(args) > len(names) {
		return fmt.Errorf("unexpected argument %q; usage: %s", args[len(names)], cmd.UseLine())
	}
	if len(args) < len(names) && !strings.HasPrefix(names[len(args)], "[") {
		return fmt.Errorf("argument %s is missing; usage: %s", names[len(args)], cmd.UseLine())
	}
	return nil
}

// needsVerb is the RunE of a noun on its own.
func needsVerb(cmd *cobra.Command, _ []string) error {
	var verbs []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			verbs = append(verbs, c.Name())
		}
	}
	return &UsageError{fmt.Errorf("%s: a subcommand is missing: %s", cmd.Name(), strings.Join(verbs, ", "))}
}

// boundsOf annotates a duration with the least and the most that it may be.
const boundsOf = "bounds"

// bounded adds a flag for a duration from least to most, which its help says, and
// checkTyped checks in the unit that was typed: the API counts milliseconds. note says
// what else there is to know, "" is nothing.
func bounded(f *pflag.FlagSet, to *time.Duration, name string, least, most time.Duration, help, note string) {
	if note != "" {
		note = "; " + note
	}
	f.DurationVar(to, name, *to, fmt.Sprintf("%s (%s to %s%s)", help, short(least), short(most), note))
	_ = f.SetAnnotation(name, boundsOf, []string{least.String(), most.String()}) // it is there
}

// short is the duration without units that are 0.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// checkTyped refuses what was typed and is out of its bounds, and zeros where a request
// would leave them out, so that they would stand for the default.
func checkTyped(f *pflag.FlagSet) error {
	var err error
	f.Visit(func(typed *pflag.Flag) {
		text := typed.Value.String()
		switch typed.Value.Type() {
		case "duration":
			if bounds := typed.Annotations[boundsOf]; bounds != nil {
				err = errors.Join(err, checkBounds(typed.Name, text, bounds[0], bounds[1]))
			}
		case "int":
			if typed.Name == "limit" && text == "0" {
				err = &UsageError{errors.New("--limit 0: must be 1 or more")}
			}
		}
	})
	return err
}

// checkBounds checks durations that time.Duration wrote.
func checkBounds(name, text, least, most string) error {
	var of [3]time.Duration
	for i, text := range []string{text, least, most} {
		of[i], _ = time.ParseDuration(text)
	}
	if of[0] < of[1] || of[0] > of[2] {
		return &UsageError{fmt.Errorf("--%s must be between %s and %s, got %s", name, short(of[1]), short(of[2]), short(of[0]))}
	}
	return nil
}

// policyFlags are the parts of a submission that have flags.
type policyFlags struct {
	ttl, executionTimeout time.Duration
	lowPriority           bool
	webhook               string
	idempotencyKey        string
}

func (p *policyFlags) add(f *pflag.FlagSet) {
	bounded(f, &p.ttl, "ttl", job.MinTTL, job.MaxTTL, "end the job this long after submission, whatever it does", "")
	bounded(f, &p.executionTimeout, "execution-timeout", job.MinExecutionTimeout, job.MaxExecutionTimeout, "time out a run that takes longer", "")
	f.BoolVar(&p.lowPriority, "low-priority", false, "run it when nothing else waits")
	f.StringVar(&p.idempotencyKey, "idempotency-key", "", "`key` that makes the submission repeatable: it stands for one job for 24 hours")
	f.StringVar(&p.webhook, "webhook", "", "`URL` to tell when the job ends")
}

// readInput returns what an argument stands for: itself, the file after an @,
// or for - what comes from in. What is larger than any request that the API takes is
// refused; the bound of the route is left to the API.
func readInput(arg string, in io.Reader) ([]byte, error) {
	path, isFile := strings.CutPrefix(arg, "@")
	switch {
	case isFile:
		file, err := os.Open(path)
		if err != nil {
			return nil, &UsageError{err}
		}
		defer file.Close() //nolint:errcheck // it was only read
		in = file
	case arg != "-":
		return []byte(arg), nil
	}
	data, err := io.ReadAll(io.LimitReader(in, job.MaxSyncBody+1))
	switch {
	case err != nil && isFile:
		return nil, &UsageError{err}
	case err != nil:
		return nil, fmt.Errorf("read standard input: %w", err)
	case len(data) > job.MaxSyncBody:
		return nil, &UsageError{fmt.Errorf("the input is larger than %d bytes; run takes %d, runsync %d", job.MaxSyncBody, job.MaxBody, job.MaxSyncBody)}
	}
	return data, nil
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
			r.S3 = parsed.S3Config
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
