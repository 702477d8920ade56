package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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
			err = sh.readSecret(secret, file)
		}
	})
	return err
}

func (sh *shell) readSecret(secret, file *pflag.Flag) error {
	in := sh.In
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
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" || len(data) > maxSecret || strings.ContainsAny(text, "\r\n\x00") {
		return &UsageError{fmt.Errorf("--%s: must hold one line of 1 to %d bytes", file.Name, maxSecret)}
	}
	return secret.Value.Set(text)
}
