package protocols

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/protobuf/proto"
)

// wanted is what the suite asks of a server.
type wanted struct {
	Protocol            string `json:"protocol"`
	UseTLS              bool   `json:"useTls"`
	ClientTLSCert       []byte `json:"clientTlsCert"`
	MessageReceiveLimit int    `json:"messageReceiveLimit"`
	ServerCreds         struct {
		Cert, Key []byte
	} `json:"serverCreds"`
}

// runJudged serves the suite's service on the listeners until the suite ends the program.
func runJudged(ctx context.Context, protos string) error {
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer cancel()
	if err := registerProtos(ctx, protos); err != nil {
		return err
	}
	var w wanted
	request := newMessage("ServerCompatRequest")
	if err := errors.Join(readDelimited(os.Stdin, request), toJSON(request, &w)); err != nil {
		return err
	}
	s := stack{
		services: []string{conformanceService}, register: registerConformance,
		around: renameHeaders, largest: w.MessageReceiveLimit,
	}
	var err error
	if w.UseTLS {
		if s.tls, err = w.tls(); err != nil {
			return err
		}
	}
	addresses, stop, err := s.start(ctx)
	if err != nil {
		return err
	}
	address := addresses.REST
	if w.Protocol == "PROTOCOL_GRPC" {
		address = addresses.GRPC
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	response := newMessage("ServerCompatResponse")
	err = fromJSON(response, map[string]any{
		"host": host, "port": port, "pemCert": w.ServerCreds.Cert,
	})
	if err = errors.Join(err, writeDelimited(os.Stdout, response)); err != nil {
		return err
	}
	<-ctx.Done()
	return stop()
}

func (w *wanted) tls() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(w.ServerCreds.Cert, w.ServerCreds.Key)
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{pair},
	}
	if len(w.ClientTLSCert) > 0 {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(w.ClientTLSCert) {
			return nil, errors.New("the client's certificate cannot be read")
		}
	}
	return c, err
}

// A message of the suite has its length before it.
func readDelimited(r io.Reader, m proto.Message) error {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	text := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	return proto.Unmarshal(text, m)
}

func writeDelimited(w io.Writer, m proto.Message) error {
	text, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// On the port of REST only headers that begin with Mooring- become metadata, and the other way
// round. So the suite's headers are renamed before the gateway's code sees them, and renamed back.
const renamed = "Mooring-Case-"

// isOfProtocol reports whether a header is one of HTTP or of the protocols, and not metadata.
func isOfProtocol(name string) bool {
	for _, prefix := range []string{"Content-", "Accept", "Connect-", "Grpc-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "Te" || name == "User-Agent" || name == "X-User-Agent" || name == "X-Grpc-Web"
}

func renameHeaders(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := http.Header{}
		for name, values := range r.Header {
			if !isOfProtocol(name) {
				name = renamed + name
			}
			header[name] = values
		}
		r.Header = header
		h.ServeHTTP(&renaming{ResponseWriter: w}, r)
	})
}
