package dev

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"flightline/services/cli"
)

// A struct of settings says where each comes from: `flag` names its flag,
// `env` its variable, `envDefault` what holds without either, `help` what it
// means. One with `secret` is never shown.

// configure gives the command a flag for each of the settings, which already
// hold what the environment says. What is wrong there is told when the command
// runs, so that others can be run all the same. settings points to a struct.
func configure(c *cobra.Command, environment map[string]string, settings any, run func(*cobra.Command, []string) error) {
	wrong := env.ParseWithOptions(settings, env.Options{Environment: environment})
	addFlags(c.Flags(), settings)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if wrong != nil {
			return &cli.UsageError{Err: inVariables(wrong, settings)}
		}
		return run(cmd, args)
	}
}

// inVariables says of what could not be read the names that people know.
func inVariables(err error, settings any) error {
	all, ok := errors.AsType[env.AggregateError](err)
	if !ok {
		return err
	}
	variables := map[string]string{}
	nameVariables(variables, reflect.TypeOf(settings).Elem())
	for _, one := range all.Errors {
		if unread, ok := errors.AsType[env.ParseError](one); ok {
			return fmt.Errorf("%s: must be %s", variables[unread.Name], formOf(unread.Type))
		}
	}
	return err
}

func nameVariables(to map[string]string, settings reflect.Type) {
	for field := range settings.Fields() {
		if field.Anonymous {
			nameVariables(to, field.Type)
			continue
		}
		to[field.Name] = field.Tag.Get("env")
	}
}

func formOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration like 90s or 10m"
	case t.Kind() == reflect.Bool:
		return "true or false"
	}
	return "a whole number"
}

func addFlags(f *pflag.FlagSet, settings any) {
	for field, value := range reflect.ValueOf(settings).Elem().Fields() {
		if field.Anonymous {
			addFlags(f, value.Addr().Interface())
			continue
		}
		name, help := field.Tag.Get("flag"), usage(field)
		switch at := value.Addr().Interface().(type) {
		case *string:
			f.StringVar(at, name, *at, help)
		case *int:
			f.IntVar(at, name, *at, help)
		case *int64:
			f.Int64Var(at, name, *at, help)
		case *bool:
			f.BoolVar(at, name, *at, help)
		case *time.Duration:
			f.DurationVar(at, name, *at, help)
		default:
			panic(fmt.Sprintf("settings: no flag for %s of type %T", field.Name, at))
		}
		if field.Tag.Get("secret") != "" {
			f.Lookup(name).DefValue = "" // help must not show it
			cli.SecretFlag(f, name)
		}
	}
}

func usage(field reflect.StructField) string {
	return fmt.Sprintf("%s [%s]", field.Tag.Get("help"), field.Tag.Get("env"))
}
