package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"flightline/shared/client"
	"flightline/shared/ratelimit"
)

func (sh *shell) keyCommand() *cobra.Command {
	c := &cobra.Command{Use: "key", Short: "Make, list, limit and revoke API keys"}
	c.AddCommand(sh.createKey(), sh.changeQuota(), sh.revokeKey(),
		listAllCommand(sh, "List the API keys", []string{"ID", "NAME", "ENDS IN", "SCOPES", "QUOTA", "CREATED"}, (*client.Client).Keys, client.Keys.List,
			func(k client.Key) []string {
				return []string{k.ID, clean(k.Name), clean(k.Last4), strings.Join(k.Scopes, " "), cmp.Or(k.Quota.String(), "default"), when(k.Created)}
			}))
	return c
}

func (sh *shell) createKey() *cobra.Command {
	var scopes []string
	var quota string
	c := &cobra.Command{
		Use: "create NAME", Short: "Make an API key; it is shown this once",
		Long: "Make an API key. It is shown this once; the server keeps only its hash.\n\n" +
			"Scopes are submit:ENDPOINT, read:ENDPOINT, admin:ENDPOINT (both, and purge),\n" +
			"with * for all endpoints, control for managing endpoints, keys and pods, and\n" +
			"pods for a look at machines, pods, templates and network volumes.\n\n" +
			"A quota bounds the key at all endpoints together, as FIELD=NUMBER with commas\n" +
			"between: requests to the queue API in 10 s (default 20000), concurrent requests\n" +
			"(2000), endpoints that the key created (2000), waitingJobs, the key's jobs that\n" +
			"wait or run (1000000), and waitingBytes, those of their inputs (10737418240, 10\n" +
			"GiB). 0 means no bound.",
		Example: "  flightline key create ci --scope submit:echo --scope read:echo --quota requests=500,concurrent=20",
		RunE: runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Key, error) {
			if len(scopes) == 0 {
				return nil, &UsageError{errors.New("give the key at least one --scope, as submit:echo")}
			}
			spec := client.KeySpec{Name: args[0], Scopes: scopes}
			if quota != "" {
				var err error
				if spec.Quota, err = ratelimit.ParseQuota(quota); err != nil {
					return nil, &UsageError{fmt.Errorf("--quota: %w", err)}
				}
			}
			return api.Keys().Create(ctx, spec)
		}, func(k *client.Key) [][]string {
			return [][]string{
				{"ID", k.ID}, {"NAME", clean(k.Name)}, {"SCOPES", strings.Join(k.Scopes, " ")}, {"QUOTA", cmp.Or(k.Quota.String(), "default")}, {"KEY", k.Plain},
			}
		}),
	}
	c.Flags().StringArrayVar(&scopes, "scope", nil, "what the key may do; repeat it for more")
	c.Flags().StringVar(&quota, "quota", "", "what the key may ask for, as requests=500,waitingJobs=1000")
	return c
}

func (sh *shell) changeQuota() *cobra.Command {
	return &cobra.Command{
		Use: "quota ID FIELD=NUMBER...", Short: "Change the quota of an API key",
		Long: "Change the quota of an API key. Fields that are not named stay as they are;\n" +
			"FIELD=default takes one back to its default, default alone takes all. The\n" +
			"change holds within two seconds. \"flightline key create -h\" has the fields.",
		Example: "  flightline key quota 5f3c9ab2e1d04c7f8a6b5c4d3e2f1a0b requests=500 concurrent=default",
		RunE: runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Key, error) {
			change, err := ratelimit.ParseQuotaChange(strings.Join(args[1:], ","))
			if err != nil {
				return nil, &UsageError{err}
			}
			return api.Keys().ChangeQuota(ctx, args[0], change)
		}, func(k *client.Key) [][]string {
			return [][]string{{"ID", k.ID}, {"NAME", clean(k.Name)}, {"QUOTA", cmp.Or(k.Quota.String(), "default")}}
		}),
	}
}

func (sh *shell) revokeKey() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Revoke an API key",
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.Keys().Revoke(ctx, args[0]); err != nil {
				return err
			}
			return sh.show(map[string]string{"revoked": args[0]}, [][]string{{"REVOKED", args[0]}})
		}),
	}
}

// limitsFlag reads limits of operations, one with each use of its flag.
type limitsFlag map[string]client.Limit

// Set implements pflag.Value.
func (f *limitsFlag) Set(text string) error {
	operation, numbers, _ := strings.Cut(text, "=")
	var l client.Limit
	if n, err := fmt.Sscanf(numbers+"\n", "%d,%d\n", &l.Requests, &l.Concurrent); n != 2 || err != nil || l.Requests < 0 || l.Concurrent < 0 {
		return fmt.Errorf("must be like run=1000,200")
	}
	if *f == nil {
		*f = limitsFlag{}
	}
	(*f)[operation] = l
	return nil
}

// String implements pflag.Value: nothing is limited by default.
func (f *limitsFlag) String() string { return "" }

// Type implements pflag.Value.
func (f *limitsFlag) Type() string { return "OPERATION=REQUESTS,CONCURRENT" }

const (
	// fileOf annotates the flag of a secret's file with the name of the secret's.
	fileOf = "flightline secret"
	// maxSecret bounds a secret, in bytes.
	maxSecret = 64 << 10
)

// SecretFlag gives the flag name, which holds a secret, a twin NAME-file: the path
// of a file that holds it, or - for standard input. Who types the secret
// itself is warned: other users of the machine see it in the list of processes.
func SecretFlag(f *pflag.FlagSet, name string) {
	f.String(name+"-file", "", "`path` of a file that holds it, or - for standard input")
	f.Lookup(name + "-file").Annotations = map[string][]string{fileOf: {name}}
}

// readSecrets sets the secrets whose files were given, and warns of those that
// were typed.
func (sh *shell) readSecrets(c *cobra.Command) (err error) {
	c.Flags().VisitAll(func(file *pflag.Flag) {
		if file.Annotations[fileOf] == nil || err != nil {
			return
		}
		secret := c.Flags().Lookup(file.Annotations[fileOf][0])
		switch {
		case secret.Changed && file.Changed:
			err = &UsageError{fmt.Errorf("--%s and --%s: only one of them can be given", secret.Name, file.Name)}
		case secret.Changed:
			_, _ = fmt.Fprintf(sh.Err, "flightline: warning: --%s can be seen by other users of this machine (ps); use --%s\n", secret.Name, file.Name)
		case file.Changed:
			err = readSecret(sh.In, secret, file)
		}
	})
	return err
}

// readSecret sets the flag secret from the file that the flag file names, or from in.
func readSecret(in io.Reader, secret, file *pflag.Flag) error {
	if path := file.Value.String(); path != "-" {
		opened, err := os.Open(path)
		if err != nil {
			return &UsageError{fmt.Errorf("--%s: %w", file.Name, err)}
		}
		defer opened.Close() //nolint:errcheck // it was only read
		in = opened
	}
	data, err := io.ReadAll(io.LimitReader(in, maxSecret+1))
	if err != nil {
		return &UsageError{fmt.Errorf("--%s: %w", file.Name, err)}
	}
	text := secretIn(data)
	if text == "" || len(data) > maxSecret || strings.ContainsAny(text, "\r\n\x00") {
		return &UsageError{fmt.Errorf("--%s: must hold one line of 1 to %d bytes", file.Name, maxSecret)}
	}
	return secret.Value.Set(text)
}

// secretIn is what a file of a secret holds, without the line break at its end and the byte
// order mark that editors of Windows put at its start.
func secretIn(file []byte) string {
	return strings.TrimRight(strings.TrimPrefix(string(file), "\ufeff"), "\r\n")
}
