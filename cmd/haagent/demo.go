package main

import (
	"errors"

	"github.com/urfave/cli/v2"
)

func demoCommand() *cli.Command {
	return &cli.Command{Name: "demo", Usage: "show replication at work", Action: func(*cli.Context) error { return errors.New("not yet") }}
}
