package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"flightline/shared/client"
	"flightline/shared/job"
)

// checkArguments has the commands below c take what their Use names, before what they
// check themselves. A noun takes one of its verbs.
func checkArguments(c *cobra.Command) {
	for _, below := range c.Commands() {
		checkArguments(below)
		switch {
		case below.HasSubCommands() && !below.Runnable():
			below.Args, below.RunE = cobra.NoArgs, needsVerb
		case below.Args == nil:
			below.Args = namedArgs
		default:
			below.Args = cobra.MatchAll(namedArgs, below.Args)
		}
	}
}

// namedArgs takes the arguments that the command's Use names: NAME is required,
// [NAME] may be left out, NAME... may be repeated, and a command after "--" is not
// counted.
func namedArgs(cmd *cobra.Command, args []string) error {
	names := strings.Fields(cmd.Use)[1:]
	if i := slices.Index(names, "[--"); i >= 0 {
		names = names[:i]
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			args = args[:dash]
		}
	}
	repeated := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "...")
	if len(args) > len(names) && !repeated {
		return fmt.Errorf("unexpected argument %q; usage: %s", args[len(names)], cmd.UseLine())
	}
	if i := slices.Index(args, ""); i >= 0 { // it would stand for all, or name nothing
		return fmt.Errorf("argument %s must not be empty; usage: %s", strings.Trim(names[min(i, len(names)-1)], "[]."), cmd.UseLine())
	}
	if len(args) < len(names) && !strings.HasPrefix(names[len(args)], "[") {
		return fmt.Errorf("argument %s is missing; usage: %s", strings.TrimSuffix(names[len(args)], "..."), cmd.UseLine())
	}
	return nil
}

// checkHelpTopic takes the words of a command, as `flightline help endpoint create` does.
func checkHelpTopic(help *cobra.Command, args []string) error {
	if _, rest, err := help.Root().Find(args); err != nil || len(rest) > 0 {
		return fmt.Errorf("unknown help topic %q", strings.Join(args, " "))
	}
	return nil
}

// flagForms say what a flag must be, by the type of its value.
var flagForms = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint64": "a whole number, 0 or more", "float64": "a number", "bool": "true or false",
	"duration": "a duration like 90s or 10m", "stringSlice": "texts with commas between them",
}

// FlagForm says what a flag with a value of this type must be, such as "a whole number"; ""
// for a type of its own, whose error says so.
func FlagForm(value pflag.Value) string { return flagForms[value.Type()] }

// flagError names the flag, its value and what it must be where err is a value that the
// flag does not take.
func flagError(_ *cobra.Command, err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	must := wrong.Unwrap().Error()
	if form := FlagForm(wrong.GetFlag().Value); form != "" {
		must = "must be " + form
	}
	if errors.Is(err, strconv.ErrRange) {
		must += " in at most 18 digits"
	}
	return fmt.Errorf("--%s %s, got %q", wrong.GetFlag().Name, must, wrong.GetValue())
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

// Annotations of flags: the least and the most that a number or a duration may be, and
// that an empty text or list is sent, since it says something.
const (
	boundsOf    = "bounds"
	emptyIsSent = "empty is sent"
)

// setBounds says from least to most what a flag may be, which checkTyped checks.
func setBounds(f *pflag.FlagSet, name string, least, most any) {
	_ = f.SetAnnotation(name, boundsOf, []string{fmt.Sprint(least), fmt.Sprint(most)}) // it is there
}

// mayBeEmpty lets checkTyped pass what is empty: it takes something away, or is the start.
func mayBeEmpty(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = f.SetAnnotation(name, emptyIsSent, nil) // it is there
	}
}

// optional adds a flag by add, such as f.IntVar, for a setting that stays nil unless the
// flag is typed: 0 and "" are values too.
func optional[T any](f *pflag.FlagSet, add func(to *T, name string, value T, usage string), to **T, name, usage string) {
	var value T
	add(&value, name, value, usage)
	flag := f.Lookup(name)
	flag.Value = optionalValue{flag.Value, func() { *to = &value }}
}

// optionalValue calls typed when it is set.
type optionalValue struct {
	pflag.Value
	typed func()
}

// Set implements pflag.Value.
func (v optionalValue) Set(text string) error {
	v.typed()
	return v.Value.Set(text)
}

// bounded adds a flag for a duration from least to most, which its help says, and
// checkTyped checks in the unit that was typed: the API counts milliseconds. note says
// what else there is to know, "" is nothing.
func bounded(f *pflag.FlagSet, to *time.Duration, name string, least, most time.Duration, help, note string) {
	if note != "" {
		note = "; " + note
	}
	f.DurationVar(to, name, *to, fmt.Sprintf("%s (%s to %s%s)", help, short(least), short(most), note))
	setBounds(f, name, least, most)
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

// checkTyped refuses what was typed and is out of its bounds, and what is empty where a
// request would leave it out, so that it would stand for the default or for all.
func checkTyped(f *pflag.FlagSet) error {
	var err error
	f.Visit(func(typed *pflag.Flag) {
		_, emptyPasses := typed.Annotations[emptyIsSent]
		list, isList := typed.Value.(pflag.SliceValue)
		switch {
		case typed.Annotations[boundsOf] != nil:
			err = errors.Join(err, checkBounds(typed))
		case !emptyPasses && (typed.Value.Type() == "string" && typed.Value.String() == "" || isList && len(list.GetSlice()) == 0):
			err = errors.Join(err, &UsageError{fmt.Errorf("--%s must not be empty, got \"\"", typed.Name)})
		}
	})
	return err
}

// checkBounds checks a duration or a whole number against its annotation.
func checkBounds(f *pflag.Flag) error {
	texts := append([]string{f.Value.String()}, f.Annotations[boundsOf]...)
	var of [3]int64
	for i, text := range texts {
		if f.Value.Type() == "duration" {
			d, _ := time.ParseDuration(text) // time.Duration wrote it
			of[i], texts[i] = int64(d), short(d)
			continue
		}
		of[i], _ = strconv.ParseInt(text, 10, 64) // package strconv wrote it
	}
	if of[0] < of[1] || of[0] > of[2] {
		return &UsageError{fmt.Errorf("--%s must be between %s and %s, got %s", f.Name, texts[1], texts[2], texts[0])}
	}
	return nil
}

// policyFlags are the parts of a submission that have flags.
type policyFlags struct {
	typed                 *pflag.FlagSet
	ttl, executionTimeout time.Duration
	lowPriority           bool
	webhook               string
	idempotencyKey        string
}

func (p *policyFlags) add(f *pflag.FlagSet) {
	p.typed = f
	bounded(f, &p.ttl, "ttl", job.MinTTL, job.MaxTTL, "end the job this long after submission, whatever it does", "")
	bounded(f, &p.executionTimeout, "execution-timeout", job.MinExecutionTimeout, job.MaxExecutionTimeout, "time out a run that takes longer", "")
	f.BoolVar(&p.lowPriority, "low-priority", false, "run it when nothing else waits")
	f.StringVar(&p.idempotencyKey, "idempotency-key", "", "`key` that makes the submission repeatable: it stands for one job for 24 hours")
	f.StringVar(&p.webhook, "webhook", "", "`URL` to tell when the job ends; '' means none")
	mayBeEmpty(f, "webhook")
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
	data, err := io.ReadAll(io.LimitReader(in, job.MaxRunSyncBody+1))
	switch {
	case err != nil && isFile:
		return nil, &UsageError{err}
	case err != nil:
		return nil, fmt.Errorf("read standard input: %w", err)
	case len(data) > job.MaxRunSyncBody:
		return nil, &UsageError{fmt.Errorf("the input is larger than %d bytes; run takes %d, runsync %d", job.MaxRunSyncBody, job.MaxRunBody, job.MaxRunSyncBody)}
	}
	return data, nil
}

// requestOf makes a submission of what was typed: an object that has the key
// "input" is a whole request as the API takes it, any other object is the
// input. Flags come before what the request says.
func requestOf(data []byte, p policyFlags) (client.Request, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil || keys == nil {
		text := `the input must be a JSON object, as '{"text":"hello"}'`
		if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
			text += fmt.Sprintf("; %v (at byte %d)", wrong, wrong.Offset)
		}
		return client.Request{}, &UsageError{errors.New(text)}
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
	if p.typed.Changed("webhook") {
		r.Webhook = p.webhook
	}
	if p.ttl != 0 {
		r.Policy.TTL = p.ttl
	}
	if p.executionTimeout != 0 {
		r.Policy.ExecutionTimeout = p.executionTimeout
	}
	r.IdempotencyKey = p.idempotencyKey
	if p.typed.Changed("low-priority") {
		r.Policy.LowPriority = p.lowPriority
	}
	return r, nil
}
