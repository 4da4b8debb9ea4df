package shell

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/cmd/gateway/internal/app"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/profile"
)

func connectionFlags(flags *pflag.FlagSet) {
	flags.String("address", "", "URL of a gateway's gRPC port, or a connection string "+
		"(default http://"+config.DefaultGRPCAddress+")")
	flags.String("profile", "", "name of a profile (default $MOORING_PROFILE, or \"default\")")
	flags.String("ca-file", "", "authorities of the gateway's certificate (default the system's)")
}

// connection makes the calls of a command.
type connection struct {
	*client.Client

	conn grpc.ClientConnInterface
	key  string
}

// connect returns a connection to the gateway or the deployment that the command line, the
// environment or a profile names. It does not wait for it.
func (s *session) connect(ctx context.Context) (*connection, error) {
	given := profile.Given{
		Name: s.text("profile"), Address: s.text("address"), CAFile: s.text("ca-file"),
	}
	if given.Name != "" && given.Address != "" {
		return nil, usage("--profile and --address cannot be used together")
	}
	p, err := profile.Choose(given, s.Environ, "http://"+config.DefaultGRPCAddress)
	if err != nil {
		return nil, err
	}
	c := &connection{key: p.Key}
	if strings.HasPrefix(p.Address, "mongodb://") || strings.HasPrefix(p.Address, "mongodb+srv://") {
		s.address = "the deployment"
		c.conn, err = s.inProcess(ctx, p.Address)
	} else {
		c.conn, err = s.overNetwork(p)
	}
	if err != nil {
		return nil, err
	}
	// What fails has often taken 30 seconds: a person decides whether to repeat it.
	c.Client = client.New(c.conn, client.Options{Token: p.Key, Retries: -1})
	return c, nil
}

// maxReceive lets a message have the largest document, with room for its frame.
const maxReceive = 64 << 20

func (s *session) overNetwork(p profile.Profile) (grpc.ClientConnInterface, error) {
	u, err := url.Parse(p.Address)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" ||
		strings.Trim(u.Path, "/") != "" {
		return nil, usage("the address must be http://host:port or https://host:port of a " +
			"gateway, or begin with mongodb:// or mongodb+srv://")
	}
	s.address, s.leads = u.Redacted(), u.Scheme+"://"+u.Host
	creds, port := insecure.NewCredentials(), "80"
	if u.Scheme == "https" {
		secure, err := authorities(p.CAFile)
		if err != nil {
			return nil, err
		}
		creds, port = credentials.NewTLS(secure), "443"
	}
	if p := u.Port(); p != "" {
		port = p
	}
	options := append([]grpc.DialOption{
		client.Keepalive(),
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
	}, s.options...)
	cc, err := grpc.NewClient("dns:///"+net.JoinHostPort(u.Hostname(), port), options...)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { _ = cc.Close() }) // it fails only if it was closed
	return cc, nil
}

// authorities returns TLS with the certificates of a file, or the system's.
func authorities(path string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if path == "" {
		return c, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", path)
	}
	return c, nil
}

// stopTime limits how long the gateway in the process takes to end.
const stopTime = 5 * time.Second

// inProcess starts a gateway without listeners before a deployment.
func (s *session) inProcess(ctx context.Context, uri string) (grpc.ClientConnInterface, error) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Set("uri", uri); err != nil {
		return nil, err
	}
	cfg, err := config.Load(flags, nil)
	if err != nil {
		return nil, s.wrongString(err)
	}
	var hosts []string // with an SRV name there are none
	for _, host := range cfg.MongoDB.Hosts {
		hosts = append(hosts, string(host))
	}
	s.leads = "mongodb://" + cfg.MongoDB.SRVHost + strings.Join(hosts, ",")
	gateway, err := app.NewLocal(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, s.wrongString(err)
	}
	for _, w := range gateway.Warnings() {
		fmt.Fprintln(s.Stderr, "mooring: warning:", w)
	}
	if err := gateway.Start(ctx); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		_ = gateway.Stop(ctx) // nothing is left to do about it
	})
	return gateway.Conn(), nil
}

// wrongString returns the error of a gateway in the process, without the name of its option, which
// the command does not have.
func (s *session) wrongString(err error) error {
	wrong, ok := errors.AsType[*config.Error](err)
	if !ok {
		return err
	}
	if s.text("address") == "" { // a profile has the string
		return fmt.Errorf("the connection string: %s", wrong.Problem)
	}
	return usage("the connection string: %s", wrong.Problem)
}

// unanswered says why a call has no answer of a gateway.
func unanswered(failed *client.Error, address string) error {
	text := failed.Message
	hints := []struct{ sign, hint string }{
		{"unexpected HTTP status code", "%s answers as REST does: name the gRPC port, " +
			"such as http://" + config.DefaultGRPCAddress},
		{"error reading server preface", "%s is not a gRPC port. Is it https, or the port of " +
			"REST?"},
		{"first record does not look like a TLS handshake", "%s has no TLS: write http://"},
		{"certificate", "the certificate of %s: " + text[strings.LastIndex(text, ": ")+1:] +
			"\nname its authorities by --ca-file, or by caFile in a profile"},
		{"connection refused", "%s cannot be reached: connection refused. Is the gateway " +
			"running? mooring serve --help"},
	}
	for _, row := range hints {
		if strings.Contains(text, row.sign) {
			return fmt.Errorf(row.hint, address)
		}
	}
	return fmt.Errorf("%s cannot be reached: %s", address, text)
}
