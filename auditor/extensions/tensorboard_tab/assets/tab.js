// What TensorBoard calls when the Audit tab is opened: the tab is our page in a frame.
export function render() {
  const frame = document.createElement("iframe");
  frame.src = new URL("page.html", import.meta.url).href;
  frame.title = "Audit";
  frame.style.cssText = "position: fixed; inset: 0; width: 100%; height: 100%; border: 0";
  document.body.style.margin = "0";
  document.body.append(frame);
}
