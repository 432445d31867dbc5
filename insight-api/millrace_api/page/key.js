// In place of a page whose reader has no key yet, or one that lacks a scope.
import { $, show } from "./common.js";
import { ask } from "./api.js";

ask(location.pathname).catch((error) => show($("why"), error.message));
