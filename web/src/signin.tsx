import { useEffect, useState } from 'preact/hooks';
import { atIssuer, refused, signIn } from './api';
import { comesBack, leave, token } from './oidc';
import { Failure } from './parts';
import { reread } from './router';

/** SignIn asks for a credential. The field is no form of the browser's: nothing is stored. */
export function SignIn() {
  const [error, setError] = useState<unknown>(refused.value);
  const [busy, setBusy] = useState(false);
  const attempt = (key: string | undefined): Promise<void> => during(() => signIn(key));
  const during = async (work: () => Promise<void>): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      await work();
    } catch (e) {
      setError(e);
      setBusy(false);
    }
  };
  useEffect(() => {
    reread();
    // After Back from the issuer, the browser may show the page as it was left.
    const shown = (e: PageTransitionEvent): void => void (e.persisted && setBusy(false));
    addEventListener('pageshow', shown);
    if (atIssuer.value && comesBack()) void during(async () => signIn(await token()));
    return () => removeEventListener('pageshow', shown);
  }, []);
  return (
    <main id="main" class="sign-in" tabIndex={-1}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void attempt(String(new FormData(e.currentTarget).get('key')).trim());
        }}
      >
        <h1>Sign in to Mooring</h1>
        {atIssuer.value && (
          <>
            <p>
              <button type="button" class="primary" disabled={busy} onClick={() => void during(leave)}>
                Sign in with your organization
              </button>
            </p>
            <p class="muted">Or with a credential that you have:</p>
          </>
        )}
        <label for="key">API key or token</label>
        <input
          id="key"
          name="key"
          type="password"
          autocomplete="off"
          required
          aria-describedby="kept"
          spellcheck={false}
        />
        <p id="kept" class="muted">
          It stays in the memory of this page. Reloading the page forgets it.
        </p>
        <p class="actions">
          <button type="submit" class={atIssuer.value ? '' : 'primary'} disabled={busy}>
            Sign in
          </button>
          <button type="button" disabled={busy} onClick={() => void attempt(undefined)}>
            Use my client certificate
          </button>
        </p>
        {error !== undefined && <Failure error={error} what="The gateway did not let you in" />}
      </form>
    </main>
  );
}
