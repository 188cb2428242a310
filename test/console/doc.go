// Package console tests the console's page in headless Chromium, served by the console in front of a real API server with the real
// aggregated API: that it shows what there is and stays live, and that nothing of what calls wrote runs.
//
// The browser is told what to do over a pipe, with the few messages of the Chrome DevTools Protocol that this takes, so that no
// module is needed for it. Its every request, dialog, violation of the page's policy and uncaught error is recorded; a test fails for
// each that it didn't provoke. TOOLCALL_CHROMIUM names the program; chromium of Debian is the default. Without an API server
// (KUBEBUILDER_ASSETS) the tests are skipped, and without a browser they fail.
package console
