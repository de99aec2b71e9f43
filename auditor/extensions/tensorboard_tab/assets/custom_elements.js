// The trace viewer was written for version 0 of web components, which browsers have dropped. This gives it the one call that
// it needs, document.registerElement, on top of today's customElements.
"use strict";
(() => {
  const inert = document.implementation.createHTMLDocument("");
  const native = Document.prototype.createElement;
  const bases = new Map(); // name of a registered element -> the plain element that it extends, or ""

  const observed = (prototype) => Object.keys(prototype._propertyInfo || {});

  document.registerElement = (name, {prototype, extends: base = ""}) => {
    const Base = base ? native.call(inert, base).constructor : HTMLElement;
    class Registered extends Base {
      static observedAttributes = observed(prototype);
      constructor() {
        super();
        Object.setPrototypeOf(this, prototype);
        prototype.createdCallback?.call(this);
      }
      connectedCallback() { this.attachedCallback?.(); }
      disconnectedCallback() { this.detachedCallback?.(); }
      attributeChangedCallback(attribute, before, after) {
        Object.getPrototypeOf(this).attributeChangedCallback?.call(this, attribute, before, after);
      }
    }
    function Element() { return base ? document.createElement(base, name) : document.createElement(name); }
    Element.prototype = prototype;
    Object.defineProperty(prototype, "constructor", {value: Element, configurable: true, writable: true});
    bases.set(name, base);
    customElements.define(name, Registered, base ? {extends: base} : undefined);
    return Element;
  };

  // Today's constructors may not add children or attributes while createElement runs; the old ones did. So the element is
  // made in a document that knows no custom elements, brought here, and only then becomes what it is.
  document.createElement = (tag, extension) => {
    const name = (typeof extension === "string" ? extension : extension?.is) || String(tag).toLowerCase();
    if (!bases.has(name)) return native.call(document, tag);
    const made = document.adoptNode(native.call(inert, tag, bases.get(name) ? {is: name} : undefined));
    customElements.upgrade(made);
    return made;
  };

  // <content> was what <slot> is today, and ::content what ::slotted() is.
  const slotted = (fragment) => {
    for (const content of fragment.querySelectorAll("content")) {
      const slot = native.call(document, "slot");
      slot.append(...content.childNodes);
      content.replaceWith(slot);
    }
    for (const style of fragment.querySelectorAll("style")) {
      style.textContent = style.textContent.replace(/::content ([\w.*-]+)(?=\s*[,{])/g, "::slotted($1)");
    }
    return fragment;
  };

  // Dialogs are elements without a hyphen, which can have no shadow today: what they put into it, they show all the same.
  Element.prototype.createShadowRoot ??= function () {
    if (!this.localName.includes("-")) return this;
    const root = this.attachShadow({mode: "open"});
    root.appendChild = (node) => Node.prototype.appendChild.call(root, node.querySelectorAll ? slotted(node) : node);
    return root;
  };
  window.wrap ??= (node) => node;
  window.unwrap ??= (node) => node;
  Object.defineProperty(document, "_currentScript", {get: () => document.currentScript});
  window.__hideTraceViewerPolyfillWarning = true;
})();
